#include "transport/pair_probe.hpp"

#include <algorithm>
#include <tuple>

namespace allrail::transport {

PairProbe::PairProbe(std::span<const RailPair> pairs) {
  for (const RailPair& pair : pairs) candidates_.push_back({pair});
}

PairProbe::Candidate* PairProbe::find(const RailPair& pair) {
  const auto at = std::ranges::find(candidates_, pair, &Candidate::pair);
  return at == candidates_.end() ? nullptr : &*at;
}

std::vector<RailPair> PairProbe::assigned() const {
  std::vector<const Candidate*> order;
  for (const Candidate& one : candidates_) order.push_back(&one);
  std::ranges::stable_sort(order, {}, [](const Candidate* one) {
    return std::tuple(one->stage, one->stage == Stage::Open ? one->failures : 0);
  });
  std::vector<RailPair> pairs;
  for (const Candidate* one : order) {
    const bool is_free = std::ranges::none_of(pairs, [&](const RailPair& taken) {
      return taken.lower == one->pair.lower || taken.higher == one->pair.higher;
    });
    if (is_free) pairs.push_back(one->pair);
  }
  return pairs;
}

void PairProbe::answered(const RailPair& pair) {
  Candidate* const one = find(pair);
  if (one != nullptr && one->stage == Stage::Open) one->stage = Stage::Answered;
}

void PairProbe::failed(const RailPair& pair) {
  Candidate* const one = find(pair);
  if (one == nullptr || one->stage == Stage::WasUp) return;
  one->stage = Stage::Open;
  ++one->failures;
}

void PairProbe::went_up(const RailPair& pair) {
  Candidate* const one = find(pair);
  if (one != nullptr) one->stage = Stage::WasUp;
}

bool PairProbe::none_answers() const {
  return std::ranges::all_of(candidates_, [](const Candidate& one) {
    return one.stage == Stage::Open && one.failures > 0;
  });
}

}  // namespace allrail::transport
