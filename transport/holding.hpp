// Holding: a stream of small puts that nobody answers leaves in batches.
//
// What a small put costs its sender and its receiver is mostly what handing it over costs: a system
// call and a segment each, or the ring of a doorbell. So the puts of such a stream lie in the rails
// until there are some, and then leave together (docs/decisions/0028). What keeps that from making
// anything late:
//  - Only puts that say so of themselves, and the first four calls of a stream not. At most half as
//    many calls as the stream has are held, so that what is late is late by less than it lasted.
//  - Whatever is not of the stream hands over all of it, and so does every look at the rails, with
//    which all waiting begins. What is held longer than kMostHeldNs leaves with the next put.
//  - A caller that does not come back soon has a helper that does (lib/helper_thread.hpp).
#pragma once

#include <algorithm>
#include <cstdint>

namespace allrail::transport {

/// Longer puts measure their rails by how long they take.
inline constexpr std::uint64_t kMostHeldPutBytes = 10U << 10;
/// The same over rails that are known to be faster than the processors. Beyond that a put costs as
/// much as its bytes do.
inline constexpr std::uint64_t kMostHeldFastPutBytes = 18U << 10;

class Holding {
 public:
  /// Of every put, before it is given to its rails. True: it may lie there with those held already.
  bool note(bool may_be_held, std::uint64_t bytes, std::uint64_t call, std::int64_t now_ns) {
    if (!may_be_held) {
      calls_in_turn_ = 0;
      return false;
    }
    if (call != last_call_) begin_call(call, now_ns);
    noted_ns_ = now_ns;
    // A call puts to many, and about as much to each.
    held_bytes_ += bytes - std::min(bytes, longest_bytes_);
    longest_bytes_ = std::max(longest_bytes_, bytes);
    return calls_in_turn_ > kSentAtOnce && !is_full(now_ns);
  }
  /// Nothing is held any more.
  void released() {
    held_calls_ = 0;
    held_bytes_ = longest_bytes_ = 0;
  }

 private:
  static constexpr std::uint32_t kSentAtOnce = 4;
  static constexpr std::uint32_t kMostHeldCalls = 32;
  static constexpr std::uint64_t kMostHeldBytes = 256U << 10;  // to one peer
  static constexpr std::int64_t kMostHeldNs = 100'000;
  /// Who computes that long between its calls gains nothing, and its receivers may wait.
  static constexpr std::int64_t kStreamGapNs = 50'000;

  void begin_call(std::uint64_t call, std::int64_t now_ns) {
    // A rank that lost its core for a while is still in its stream.
    if (now_ns - noted_ns_ > kStreamGapNs) calls_in_turn_ /= 2;
    calls_in_turn_ = std::min(calls_in_turn_ + 1, 2 * kMostHeldCalls);
    if (held_calls_++ == 0) held_since_ns_ = now_ns;
    longest_bytes_ = 0;
    last_call_ = call;
  }
  bool is_full(std::int64_t now_ns) const {
    return held_calls_ > calls_in_turn_ / 2 || held_bytes_ > kMostHeldBytes ||
           now_ns - held_since_ns_ > kMostHeldNs;
  }

  std::uint64_t last_call_ = UINT64_MAX;
  std::int64_t noted_ns_ = 0;        // when the last put of a stream came
  std::int64_t held_since_ns_ = 0;   // of held_calls_ > 0
  std::uint32_t calls_in_turn_ = 0;  // of the stream, up to twice what may be held
  std::uint32_t held_calls_ = 0;     // since released(), those that were sent at once, too
  std::uint64_t held_bytes_ = 0;     // of the longest put of each
  std::uint64_t longest_bytes_ = 0;  // of the call that is noted now
};

}  // namespace allrail::transport
