// Coalescing: a stream of small chunks that nobody answers leaves in segments of several chunks.
//
// What a segment costs, its sender and its receiver, is far more than what a small chunk costs
// within one. So a segment that is not full waits until the peer's kernel has acknowledged the last
// one (Nagle, RFC 896, 1984): a peer that keeps up gets every chunk at once, one that is behind
// gets all that came about meanwhile. It is the kernel that sends, so nothing waits for this
// process to call again. What makes Nagle slow elsewhere is left out:
//  - An exchange in which ranks answer each other never waits. Only chunks that say so of
//    themselves wait, and only from the third on without a chunk from the peer in between; any
//    other frame sends at once what is held.
//  - Receivers acknowledge what they have read at once. By itself a kernel may take 40 ms for it.
#pragma once

#include <cstdint>

namespace allrail::transport {

/// Longer chunks are several segments on most networks, of which one at most is not full.
inline constexpr std::uint32_t kMostCoalescedBytes = 1408;

/// The sending end of one connection, which begins with Nagle's algorithm off.
class Coalescing {
 public:
  /// A frame is about to be sent. True: it says that what follows may wait for an acknowledgement.
  bool count(bool may_coalesce) {
    in_turn_ = !may_coalesce ? 0 : in_turn_ < kAtOnce ? in_turn_ + 1 : kAtOnce;
    return in_turn_ == kAtOnce;
  }
  /// A chunk came from the peer: what is sent next may be the answer that it waits for.
  void interrupt() { in_turn_ = 0; }
  /// All frames that were counted have been given to the kernel.
  void apply(int fd) {
    if (is_on_ != (in_turn_ == kAtOnce)) turn(fd);
  }

 private:
  /// So many are sent at once. The last of them is the first that says what follows may wait, so
  /// that the acknowledgement which ends the waiting never takes its time.
  static constexpr std::uint32_t kAtOnce = 2;
  void turn(int fd);

  std::uint32_t in_turn_ = 0;  // frames that may coalesce, since any other, here or from the peer
  bool is_on_ = false;
};

/// The receiving end: acknowledges what was read, without waiting for something to go back.
void acknowledge_segments(int fd);

}  // namespace allrail::transport
