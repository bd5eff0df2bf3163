// Monotonic time in nanoseconds, and deadlines.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <limits>

namespace allrail::base {

/// Monotonic clock, nanoseconds. A vDSO read: no system call.
inline std::int64_t now_ns() noexcept {
  // What std::chrono::steady_clock reads, without another library in between: right behind a system
  // call every page of code that is gone through costs.
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

/// A point in time after which a wait gives up.
class Deadline {
 public:
  static Deadline never() noexcept { return Deadline(std::numeric_limits<std::int64_t>::max()); }
  /// Never where the clock does not go so far.
  template <class Count, class Period>
  static Deadline after(std::chrono::duration<Count, Period> duration) noexcept {
    constexpr std::chrono::hours kCentury(24 * 365 * 100);
    if (duration > kCentury) return never();
    return Deadline(now_ns() + std::chrono::nanoseconds(duration).count());
  }
  bool passed() const noexcept {
    return at_ns_ != std::numeric_limits<std::int64_t>::max() && now_ns() >= at_ns_;
  }
  /// Milliseconds until the deadline, at least 0 and at most `limit_ms`: an argument for poll(2).
  int remaining_ms(int limit_ms) const noexcept {
    if (at_ns_ == std::numeric_limits<std::int64_t>::max()) return limit_ms;
    const std::int64_t left_ms = (at_ns_ - now_ns() + 999'999) / 1'000'000;
    if (left_ms <= 0) return 0;
    return left_ms < limit_ms ? static_cast<int>(left_ms) : limit_ms;
  }
  std::int64_t at_ns() const noexcept { return at_ns_; }

 private:
  explicit Deadline(std::int64_t at_ns) noexcept : at_ns_(at_ns) {}
  std::int64_t at_ns_;
};

}  // namespace allrail::base
