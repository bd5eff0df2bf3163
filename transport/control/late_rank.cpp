#include "transport/control/late_rank.hpp"

#include <algorithm>
#include <tuple>

namespace allrail::transport::control {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
/// News that nobody repeats, or that only goes round among those who heard it, is forgotten.
constexpr std::uint32_t kForgetMs = 2'000;

bool is_further_behind(const LateRank& one, const LateRank& other) {
  return std::tie(one.sequence, one.rank) < std::tie(other.sequence, other.rank);
}

}  // namespace

void LateWatch::wanted(std::uint64_t sequence) { wanted_ = std::max(wanted_, sequence); }

void LateWatch::observe(std::span<const LocalProgress> progress) {
  local_.resize(progress.size());
  for (std::size_t i = 0; i < progress.size(); ++i) {
    const LocalProgress& now = progress[i];
    Seen& seen = local_[i];
    // A rank that goes from one call to the next shows no number for a moment.
    seen.stays = seen.rank == now.rank && seen.last == now.last;
    seen.rank = now.rank;
    seen.last = now.last;
    seen.active = now.state == LocalProgress::State::Active;
  }
}

bool LateWatch::is_local(int rank) const {
  return std::ranges::any_of(local_, [&](const Seen& one) { return one.rank == rank; });
}

void LateWatch::heard(const LateRank& late, std::int64_t now_ns) {
  if (late.rank < 0 || late.rank >= size_ || late.age_ms >= kForgetMs) return;
  if (is_local(late.rank)) return;
  if (heard_) {
    const LateRank known{
        heard_->rank, heard_->sequence,
        heard_->age_ms + static_cast<std::uint32_t>((now_ns - heard_at_ns_) / kMillisecond)};
    const bool is_newer = known.rank == late.rank && late.age_ms <= known.age_ms;
    if (known.age_ms < kForgetMs && !is_newer && !is_further_behind(late, known)) return;
  }
  heard_ = late;
  heard_at_ns_ = now_ns;
}

std::optional<LateRank> LateWatch::late(std::int64_t now_ns) const {
  std::optional<LateRank> found;
  if (heard_ && heard_->sequence < wanted_) {
    const std::int64_t age_ms = heard_->age_ms + (now_ns - heard_at_ns_) / kMillisecond;
    if (age_ms < kForgetMs) {
      found = LateRank{heard_->rank, heard_->sequence, static_cast<std::uint32_t>(age_ms)};
    }
  }
  for (const Seen& one : local_) {
    const LateRank local{one.rank, one.last, 0};
    if (!one.active || !one.stays || one.last >= wanted_) continue;
    if (!found || is_further_behind(local, *found)) found = local;
  }
  return found;
}

}  // namespace allrail::transport::control
