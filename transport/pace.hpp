// Whether rails are faster than the processors behind them.
#pragma once

#include <algorithm>

namespace allrail::transport {

enum class Pace { Unknown, Slow, Fast };

/// Of one rail, for whoever chooses algorithms: by chunks that were watched until they had left
/// this host, and looked at in time. A DepartureMeter takes those for slow, too, that this process
/// looked at late, since it had lost its core or copied; without them no chunk of a fast rail is
/// slow, however busy the processors are, and behind a shaper few are fast in a row. It does not
/// serve for puts: at the other end of a fast rail the peer's may be slow.
class PaceMeter {
 public:
  static constexpr int kSamples = 32;

  void saw(bool is_slow) {
    seen_ = std::min(seen_ + 1, kSamples);
    fast_in_a_row_ = is_slow ? 0 : std::min(fast_in_a_row_ + 1, kSamples);
  }
  Pace pace() const {
    if (seen_ < kSamples) return Pace::Unknown;
    return fast_in_a_row_ < kSamples ? Pace::Slow : Pace::Fast;
  }

 private:
  int seen_ = 0;
  int fast_in_a_row_ = 0;
};

}  // namespace allrail::transport
