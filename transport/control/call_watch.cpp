#include "transport/control/call_watch.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "include/allrail/error.hpp"

namespace allrail::transport::control {
namespace {

AbortCause different_calls(int one, int other, std::uint64_t sequence) {
  const auto [low, high] = std::minmax(one, other);
  return {
      static_cast<int>(Code::Mismatch), high,
      fmt::format("rank {} and rank {} made different calls as number {}: operation, size, "
                  "root, algorithm, kind of memory or settings differ; every rank must make the "
                  "same collective calls in the same order with the same settings",
                  low, high, sequence)};
}

}  // namespace

std::optional<AbortCause> CallWatch::observe(std::span<const LocalProgress> progress,
                                             std::int64_t now_ns) {
  seen_.resize(progress.size());
  waits_.clear();
  for (std::size_t index = 0; index < progress.size(); ++index) {
    Seen& seen = seen_[index];
    const LocalProgress& current = progress[index];
    // Between two reads of its words a rank shows no number: it is moving, so it waits for nobody.
    if (current.sequence != seen.sequence || current.in_call != seen.in_call) {
      seen.since_ns = now_ns;
    }
    seen.rank = current.rank;
    seen.in_call = current.in_call;
    seen.sequence = current.sequence;
    if (!current.in_call || current.sequence == 0 ||
        current.state != LocalProgress::State::Active || now_ns - seen.since_ns < wait_ns_) {
      continue;
    }
    const Wait wait{current.rank, current.sequence, current.stamp};
    const bool known = std::any_of(waits_.begin(), waits_.end(), [&](const Wait& other) {
      return other.sequence == wait.sequence && other.stamp == wait.stamp;
    });
    if (!known && waits_.size() < kMaxWaits) waits_.push_back(wait);
  }
  return compare(waits_);
}

std::optional<AbortCause> CallWatch::compare(std::span<const Wait> waits) const {
  for (const Wait& wait : waits) {
    for (std::size_t local = 0; local < seen_.size(); ++local) {
      // Of a call with a root, ranks may be through that the waiting rank will never be through.
      const std::uint64_t stamp = stamp_of_(local, wait.sequence);
      if (stamp != 0 && stamp != wait.stamp) {
        return different_calls(wait.rank, seen_[local].rank, wait.sequence);
      }
    }
  }
  return std::nullopt;
}

}  // namespace allrail::transport::control
