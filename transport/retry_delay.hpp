// How long a rail waits before it tries a lost link again.
#pragma once

#include <algorithm>
#include <cstdint>

namespace allrail::transport {

/// Doubles from 100 ms up to a second, and a little less by chance, so that those who lost the same
/// peer do not come back all at once.
class RetryDelay {
 public:
  explicit RetryDelay(std::uint64_t seed) : state_(seed | 1) {}

  /// `delay_ms` belongs to the link: 0 before its first retry, and again once it was up.
  std::int64_t next_ns(int& delay_ms) {
    delay_ms = delay_ms == 0 ? kFirstMs : std::min(2 * delay_ms, kLongestMs);
    // Xorshift: quality does not matter here.
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    const auto spread_ms =
        static_cast<std::int64_t>(state_ % static_cast<std::uint64_t>(delay_ms / 4));
    return (delay_ms - spread_ms) * 1'000'000;
  }

 private:
  static constexpr int kFirstMs = 100;
  static constexpr int kLongestMs = 1'000;
  std::uint64_t state_;
};

}  // namespace allrail::transport
