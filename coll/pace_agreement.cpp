#include "coll/pace_agreement.hpp"

namespace allrail::coll {
namespace {

using transport::Pace;

constexpr std::uint32_t kSlowBit = 1;
constexpr std::uint32_t kFastBit = 2;
constexpr int kBitsPerLevel = 2;
// Beyond that many rounds, which 65,536 nodes have, nothing is agreed on.
constexpr int kMostRounds = 32 / kBitsPerLevel;

}  // namespace

std::uint32_t PaceAgreement::begin(Pace mine) noexcept {
  const std::uint32_t said = mine == Pace::Slow ? kSlowBit : mine == Pace::Fast ? kFastBit : 0;
  heard_ = heard_ << kBitsPerLevel | said;
  return heard_;
}

Pace PaceAgreement::agreed(int rounds) const noexcept {
  if (rounds < 1 || rounds > kMostRounds) return Pace::Unknown;
  const std::uint32_t highest = heard_ >> (kBitsPerLevel * (rounds - 1));
  if ((highest & kSlowBit) != 0) return Pace::Slow;
  return (highest & kFastBit) != 0 ? Pace::Fast : Pace::Unknown;
}

}  // namespace allrail::coll
