#include "transport/turn_shares.hpp"

#include <algorithm>
#include <cmath>

namespace allrail::transport {

namespace {

// Rails are compared after so many chunks of each, and again after as many more until they are
// found unlike, or taken for alike. Shapers save up while a rail has no turn, so that at a full
// rail a fifth of the chunks may stay, or fewer.
constexpr int kLeastSeen = 48;
constexpr int kMostSeen = 384;
constexpr int kLongestSeen = 4 * kMostSeen;  // of a rail while there is no other to compare with
// So many standard deviations apart is not by chance.
constexpr double kUnlike = 4;
// What a rail gives up at a time. Shapers save up what a rail did not carry, so that what is given
// up shows late: with large steps shares would swing.
constexpr double kStep = 4.0 / 5;
// What is forgotten of a share where rails are alike: then turns are as good.
constexpr double kForgotten = 1.0 / 24;
// A rail that has no turns is not seen to become faster.
constexpr double kLeastShare = 1.0 / 16;
// Receivers look for a put where the last one of such a port came from, so turns are only passed
// on where that brings something.
constexpr double kWholeShare = 0.8;

}  // namespace

void TurnShares::saw(int rail, bool stayed) {
  Turns& seen = turns_[static_cast<std::size_t>(rail)];
  seen.is_known = true;
  ++seen.seen;
  seen.stayed += stayed ? 1 : 0;
  is_some_full_ = is_some_full_ || stayed;
  if (seen.seen % kLeastSeen != 0) return;
  Turns* full = nullptr;
  Turns* other = nullptr;
  for (Turns& each : turns_) {
    if (each.seen < kLeastSeen) continue;
    if (full == nullptr || each.staying_share() > full->staying_share()) full = &each;
    if (other == nullptr || each.staying_share() <= other->staying_share()) other = &each;
  }
  if (full != other) {
    compare(*full, *other);
  } else if (seen.seen >= kLongestSeen) {
    seen.seen = seen.stayed = 0;
  }
}

/// Whether chunks stay more often at one of two rails (the test of two proportions).
bool TurnShares::are_unlike(const Turns& full, const Turns& other) {
  const double of_full = full.staying_share();
  const double of_other = other.staying_share();
  const double of_both = static_cast<double>(full.stayed + other.stayed) / (full.seen + other.seen);
  const double variance = of_both * (1 - of_both) * (1.0 / full.seen + 1.0 / other.seen);
  return variance > 0 && of_full - of_other > kUnlike * std::sqrt(variance);
}

void TurnShares::compare(Turns& full, Turns& other) {
  const bool unlike = are_unlike(full, other);
  if (unlike) {
    full.share *= kStep;
  } else {
    full.share += kForgotten * (1 - full.share);
    other.share += kForgotten * (1 - other.share);
    if (std::min(full.seen, other.seen) < kMostSeen) return;
  }
  is_some_full_ = full.stayed > 0;
  full.seen = full.stayed = other.seen = other.stayed = 0;
  // Whoever keeps most of those that are known keeps all.
  double most = 0;
  for (const Turns& each : turns_) {
    if (each.is_known) most = std::max(most, each.share);
  }
  for (Turns& each : turns_) each.share = std::clamp(each.share / most, kLeastShare, 1.0);
}

int TurnShares::rail_for(int in_turn, unsigned turn, unsigned rails) const {
  const double kept = share(in_turn);
  if (kept >= kWholeShare) return in_turn;
  // As evenly as can be: of three turns two, of five three.
  const auto before = static_cast<unsigned>(kept * turn);
  if (static_cast<unsigned>(kept * (turn + 1)) != before) return in_turn;
  // By turns again, among those that keep most.
  int best = in_turn;
  for (int i = 0; i < kMaxRails; ++i) {
    const int rail = (in_turn + 1 + static_cast<int>((turn - before) % kMaxRails) + i) % kMaxRails;
    if ((rails >> rail & 1U) != 0 && share(rail) > share(best)) best = rail;
  }
  return best;
}

}  // namespace allrail::transport
