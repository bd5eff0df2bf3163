// Coalescing: a stream of small chunks that nobody answers leaves in segments of several chunks.
//
// What a segment costs its sender and its receiver is far more than what a small chunk costs within
// one. So a segment that is not full waits while the peer's kernel has not acknowledged the last
// such one (Nagle, RFC 896, 1984, with Minshall's change): a peer that is behind gets all that came
// about meanwhile, one that keeps up gets a chunk a round trip later at most. It is the kernel that
// sends, so nothing waits for this process to call again. What makes Nagle slow elsewhere is left
// out:
//  - An exchange in which ranks answer each other never waits. Only chunks that say so of
//    themselves wait, from the third in turn on; any other frame sends at once what is held, and so
//    does one that comes 50 us after the last.
//  - A receiver sees to it that what it has read is acknowledged once it has waited for more, or
//    before it sleeps. By itself a kernel may take 40 ms. At once would be too soon: where every
//    receiver has a core, all would be acknowledged before the sender is back with the next chunk.
#pragma once

#include <algorithm>
#include <cstdint>

namespace allrail::transport {

/// Longer chunks are several segments on most networks, of which one at most is not full.
inline constexpr std::uint32_t kMostCoalescedBytes = 1408;

/// The sending end of one connection, which begins with Nagle's algorithm off.
class Coalescing {
 public:
  /// The next frame is about to be sent or queued. True: it says that what follows may wait for an
  /// acknowledgement.
  bool note_frame(bool may_coalesce, std::int64_t now_ns) {
    // A root that computes between its calls gains nothing, and its receivers may compute, too.
    const bool is_late = may_coalesce && now_ns - noted_ns_ > kStreamGapNs;
    if (!may_coalesce || is_late) {
      in_turn_ = 0;
      has_to_leave_ = is_on_;
    }
    if (may_coalesce) {
      noted_ns_ = now_ns;
      in_turn_ = std::min(in_turn_ + 1, kSentAtOnce);
    }
    return in_turn_ == kSentAtOnce;
  }
  /// All frames that were noted have been given to the kernel.
  void apply(int fd) {
    if (is_on_ != (in_turn_ == kSentAtOnce) || has_to_leave_) turn(fd);
  }

 private:
  /// So many are sent at once. The last of them is the first that says what follows may wait, so
  /// that the acknowledgement which ends the waiting does not take its time.
  static constexpr std::uint32_t kSentAtOnce = 2;
  static constexpr std::int64_t kStreamGapNs = 50'000;
  void turn(int fd);

  std::int64_t noted_ns_ = 0;  // when the last frame came that may coalesce
  std::uint32_t in_turn_ = 0;  // frames that may coalesce, since any other
  bool is_on_ = false;
  bool has_to_leave_ = false;  // another frame was sent, or queued, while it is on
};

/// The receiving end of one connection.
class SegmentAcknowledgements {
 public:
  /// Something was read, and the last chunk of it says whether the peer coalesces.
  void note_read(int fd, bool peer_coalesces);
  /// Nothing was there to read. Whoever has waited for a while is acknowledged what it has.
  void note_wait(int fd);
  /// What was read is acknowledged now: nobody looks for a while.
  void send(int fd);
  bool are_withheld() const { return withheld_since_ns_ != 0; }

 private:
  bool is_on_ = false;  // the kernel waits for send()
  std::int64_t withheld_since_ns_ = 0;
};

}  // namespace allrail::transport
