// Whether rails are faster than the processors behind them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace allrail::transport {

enum class Pace { Unknown, Slow, Fast };
inline constexpr std::size_t kPaces = 3;

/// Of one rail, for whoever chooses algorithms: by chunks, and by what left together of a stream,
/// that were watched until they had left this host, and looked at in time. A DepartureMeter takes
/// those for slow, too, that this process looked at late, since it had lost its core or copied;
/// without them no chunk of a fast rail was slow where this was measured, however busy the
/// processors were, and behind a shaper few are fast in a row. It does not serve for puts: at the
/// other end of a fast rail the peer's may be slow.
class PaceMeter {
 public:
  static constexpr int kSamples = 32;
  static constexpr int kSlowBatches = 4;

  /// `bytes_per_second`: what the rail was given around then; 0: not known.
  void saw(bool is_slow, double bytes_per_second) {
    seen_ = std::min(seen_ + 1, kSamples);
    note(is_slow, bytes_per_second);
  }
  /// What left together of a stream. It may be short, so that one that stays says little; and what
  /// leaves at once says nothing of longer ones, so that it makes a rail at most unknown again.
  void saw_batch(bool is_slow, double bytes_per_second) {
    slow_batches_ = std::max(0, slow_batches_ + (is_slow ? 1 : -1));
    if (slow_batches_ >= kSlowBatches) {
      slow_batches_ = kSlowBatches;
      seen_ = kSamples;
      note(true, bytes_per_second);
    } else if (!is_slow && pace() == Pace::Slow) {
      note(false, bytes_per_second);
      if (pace() == Pace::Fast) seen_ = 0;
    }
  }
  Pace pace() const {
    if (seen_ < kSamples) return Pace::Unknown;
    return fast_points_ < kFastPoints ? Pace::Slow : Pace::Fast;
  }

 private:
  // Who chooses by the pace sends less over slow rails, over which that leaves at once. So once a
  // rail was slow, what leaves at once counts in full only where the rail is given clearly more.
  static constexpr int kPointsInFull = 16;
  static constexpr int kFastPoints = kSamples * kPointsInFull;
  static constexpr double kClearlyMore = 1.5;

  void note(bool is_slow, double bytes_per_second) {
    if (is_slow) {
      fast_points_ = 0;
      was_slow_ = true;
      if (bytes_per_second > 0) slow_bytes_per_second_ = bytes_per_second;
      return;
    }
    const bool is_clearly_more =
        slow_bytes_per_second_ > 0 && bytes_per_second >= kClearlyMore * slow_bytes_per_second_;
    const int points = !was_slow_ || is_clearly_more ? kPointsInFull : 1;
    fast_points_ = std::min(fast_points_ + points, kFastPoints);
    if (fast_points_ == kFastPoints) slow_batches_ = 0;
  }

  int seen_ = 0;
  int fast_points_ = 0;   // since it was slow for the last time
  int slow_batches_ = 0;  // more than left at once, since as many had
  bool was_slow_ = false;
  double slow_bytes_per_second_ = 0;  // what it was given then
};

/// What a rail is given, over some milliseconds in which something was watched.
class Load {
 public:
  /// 0: not known yet.
  double bytes_per_second(std::uint64_t bytes_sent, std::int64_t now_ns) {
    const std::int64_t passed_ns = now_ns - since_ns_;
    if (passed_ns < kLeastNs) return bytes_per_second_;
    // Longer without anything to watch, and the rail was idle meanwhile.
    if (passed_ns < kMostNs) {
      bytes_per_second_ =
          static_cast<double>(bytes_sent - bytes_before_) * 1e9 / static_cast<double>(passed_ns);
    }
    bytes_before_ = bytes_sent;
    since_ns_ = now_ns;
    return bytes_per_second_;
  }

 private:
  static constexpr std::int64_t kLeastNs = 2'000'000;
  static constexpr std::int64_t kMostNs = 20'000'000;
  std::uint64_t bytes_before_ = 0;
  std::int64_t since_ns_ = 0;
  double bytes_per_second_ = 0;
};

}  // namespace allrail::transport
