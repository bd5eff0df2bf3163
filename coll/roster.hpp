// Who is on which node and who leads there, as a rank keeps it for the whole job: the node of every
// rank, 4 bytes each, and beyond that only what belongs to its own node or to nodes as a whole.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "coll/schedule/shape.hpp"
#include "lib/topology/leaders.hpp"

namespace allrail::coll {

class Roster {
 public:
  Roster() = default;
  /// `rank` is this process.
  Roster(const schedule::NodeMap& map, int rank);

  int rank() const { return rank_; }
  int node() const { return node_of(rank_); }
  int ranks() const { return static_cast<int>(node_of_.size()); }
  int nodes() const { return static_cast<int>(sizes_.size()); }
  int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& node_of_ranks() const { return node_of_; }
  int node_size(int node) const { return sizes_[static_cast<std::size_t>(node)]; }
  int smallest_node() const;
  int largest_node() const;
  int first_rank_of(int node) const { return first_[static_cast<std::size_t>(node)]; }

  /// The ranks of my node, ascending, and the place of one of them there.
  std::span<const int> local_ranks() const { return local_ranks_; }
  int rank_of_local(int local) const { return local_ranks_[static_cast<std::size_t>(local)]; }
  int local_rank_of(int rank) const;

  /// Everything about all ranks, for as long as a schedule is made.
  schedule::NodeMap map() const { return schedule::NodeMap(node_of_); }

  /// The leaf switches and chassis of all nodes; null: not known.
  void hang_on(std::shared_ptr<const schedule::Switches> switches) {
    switches_ = std::move(switches);
  }
  const std::shared_ptr<const schedule::Switches>& switches() const { return switches_; }

  /// Leaders are elected by where ranks run. `places`, by rank, outlives the roster.
  void elect_by(topology::LeaderPolicy policy, std::span<const topology::RankPlace> places);
  /// How many leaders per node the places call for: what the node that wants most asks for.
  int natural_leaders() const { return natural_leaders_; }
  /// What a shape with so many leaders groups the ranks by; null: by their order.
  std::shared_ptr<const schedule::Grouping> grouping(int leaders) const;
  /// The local rank on my node that talks for it where one does for all.
  int talking_local_rank() const;

 private:
  int rank_ = 0;
  std::vector<int> node_of_;  // by rank
  std::vector<int> sizes_;    // by node
  std::vector<int> first_;    // by node
  std::vector<int> local_ranks_;
  std::shared_ptr<const schedule::Switches> switches_;
  topology::LeaderPolicy policy_ = topology::LeaderPolicy::Near;
  std::span<const topology::RankPlace> places_;
  int natural_leaders_ = 1;
};

}  // namespace allrail::coll
