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

}  // namespace allrail::coll
