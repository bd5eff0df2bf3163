#include "coll/roster.hpp"

#include <algorithm>

namespace allrail::coll {

Roster::Roster(const schedule::NodeMap& map, int rank)
    : rank_(rank),
      node_of_(map.node_of),
      local_ranks_(
          map.ranks_of[static_cast<std::size_t>(map.node_of[static_cast<std::size_t>(rank)])]) {
  for (const std::vector<int>& ranks : map.ranks_of) {
    sizes_.push_back(static_cast<int>(ranks.size()));
    first_.push_back(ranks.front());
  }
}

int Roster::smallest_node() const { return *std::ranges::min_element(sizes_); }

int Roster::largest_node() const { return *std::ranges::max_element(sizes_); }

int Roster::local_rank_of(int rank) const {
  return static_cast<int>(std::ranges::lower_bound(local_ranks_, rank) - local_ranks_.begin());
}

namespace {

std::vector<topology::RankPlace> places_on(std::span<const topology::RankPlace> places,
                                           const std::vector<int>& ranks) {
  std::vector<topology::RankPlace> found;
  found.reserve(ranks.size());
  for (const int rank : ranks) found.push_back(places[static_cast<std::size_t>(rank)]);
  return found;
}

}  // namespace

void Roster::elect_by(topology::LeaderPolicy policy, std::span<const topology::RankPlace> places) {
  policy_ = policy;
  places_ = places;
  natural_leaders_ = 1;
  if (places.size() != node_of_.size()) return;
  for (const std::vector<int>& ranks : map().ranks_of) {
    natural_leaders_ =
        std::max(natural_leaders_, topology::natural_leaders(policy, places_on(places, ranks)));
  }
}

std::shared_ptr<const schedule::Grouping> Roster::grouping(int leaders) const {
  // One place for all says no more than none.
  const bool differ = std::ranges::any_of(
      places_, [this](const topology::RankPlace& place) { return place != places_.front(); });
  if (!differ || nodes() == 1) return nullptr;
  const schedule::NodeMap nodes = map();
  auto grouping = std::make_shared<schedule::Grouping>();
  grouping->lanes = std::clamp(leaders, 1, std::min(nodes.largest_node, schedule::kMostLanes));
  grouping->lane_of.resize(node_of_.size());
  for (const std::vector<int>& ranks : nodes.ranks_of) {
    const topology::NodeLeaders elected =
        topology::elect_leaders(policy_, places_on(places_, ranks), grouping->lanes);
    grouping->leaders.insert(grouping->leaders.end(), elected.leaders.begin(),
                             elected.leaders.end());
    for (std::size_t local = 0; local < ranks.size(); ++local) {
      grouping->lane_of[static_cast<std::size_t>(ranks[local])] =
          static_cast<std::uint8_t>(elected.lane_of[local]);
    }
  }
  return grouping;
}

int Roster::talking_local_rank() const {
  const auto groups = grouping(1);
  return groups ? groups->leaders[static_cast<std::size_t>(node())] : 0;
}

}  // namespace allrail::coll
