#include "coll/schedule/shape.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace allrail::schedule {

NodeMap::NodeMap(std::vector<int> node_of_rank) : node_of(std::move(node_of_rank)) {
  if (node_of.empty()) {
    throw std::invalid_argument("a node map needs at least one rank");
  }
  const int largest = *std::max_element(node_of.begin(), node_of.end());
  // A valid map numbers its nodes without gaps, so no number can reach the rank count: checked
  // before anything of that size is allocated.
  if (largest >= ranks() || *std::min_element(node_of.begin(), node_of.end()) < 0) {
    throw std::invalid_argument("the node map names node " + std::to_string(largest) + " for " +
                                std::to_string(ranks()) +
                                " ranks; nodes are numbered from 0 without gaps");
  }
  ranks_of.resize(static_cast<std::size_t>(largest) + 1);
  local_rank_of.reserve(node_of.size());
  for (int rank = 0; rank < ranks(); ++rank) {
    std::vector<int>& local = ranks_of[node_of[rank]];
    local_rank_of.push_back(static_cast<int>(local.size()));
    local.push_back(rank);
  }
  smallest_node = ranks();
  for (int node = 0; node < nodes(); ++node) {
    if (ranks_of[node].empty()) {
      throw std::invalid_argument("node " + std::to_string(node) +
                                  " of the node map has no rank; nodes are numbered without gaps");
    }
    smallest_node = std::min(smallest_node, node_size(node));
    largest_node = std::max(largest_node, node_size(node));
  }
}

bool ranks_may_talk(const NodeMap& map) {
  constexpr int kMostPeers = 64;
  return map.largest_node == 1 || map.ranks() - map.smallest_node <= kMostPeers;
}

namespace {

/// How many nodes hang on every leaf.
std::vector<int> nodes_by_leaf(const std::vector<int>& leaf_of) {
  std::vector<int> nodes;
  for (const int leaf : leaf_of) {
    nodes.resize(std::max(nodes.size(), static_cast<std::size_t>(leaf) + 1));
    ++nodes[static_cast<std::size_t>(leaf)];
  }
  return nodes;
}

}  // namespace

int Switches::leaves() const {
  const std::vector<int> nodes = nodes_by_leaf(leaf_of);
  return static_cast<int>(std::ranges::count_if(nodes, [](int count) { return count > 0; }));
}

int Switches::shared_leaves() const {
  const std::vector<int> nodes = nodes_by_leaf(leaf_of);
  return static_cast<int>(std::ranges::count_if(nodes, [](int count) { return count > 1; }));
}

std::vector<int> numbers_of(std::span<const std::string> names) {
  std::map<std::string_view, int> number_of;
  std::vector<int> numbers;
  numbers.reserve(names.size());
  for (const std::string& name : names) {
    numbers.push_back(
        number_of.try_emplace(name, static_cast<int>(number_of.size())).first->second);
  }
  return numbers;
}

int Groups::lanes() const {
  if (map.nodes() == 1) return 1;
  return grouping ? grouping->lanes
                  : std::clamp(leaders, 1, std::min(map.largest_node, kMostLanes));
}

int Groups::leader(int node, int lane) const {
  if (grouping && map.nodes() > 1) return grouping->leaders[node * grouping->lanes + lane];
  return static_cast<int>(static_cast<long long>(lane) * map.node_size(node) / lanes());
}

int Groups::lane_of(int rank) const {
  if (grouping && map.nodes() > 1) return grouping->lane_of[rank];
  // The largest lane whose first local rank, floor(lane * size / lanes), is not above this one.
  const long long size = map.node_size(map.node_of[rank]);
  return static_cast<int>(((map.local_rank_of[rank] + 1LL) * lanes() - 1) / size);
}

GroupTable::GroupTable(const Groups& groups) : lanes_(static_cast<std::size_t>(groups.lanes())) {
  const auto nodes = static_cast<std::size_t>(groups.map.nodes());
  const auto group_of = [&](int rank) {
    return static_cast<std::size_t>(groups.map.node_of[rank]) * lanes_ +
           static_cast<std::size_t>(groups.lane_of(rank));
  };
  // Counted one place too far, so that filling in moves every start to where it belongs.
  starts_.assign(nodes * lanes_ + 2, 0);
  for (int rank = 0; rank < groups.ranks(); ++rank) ++starts_[group_of(rank) + 2];
  for (std::size_t group = 2; group < starts_.size(); ++group) starts_[group] += starts_[group - 1];
  ranks_.resize(groups.map.node_of.size());
  for (int rank = 0; rank < groups.ranks(); ++rank) ranks_[starts_[group_of(rank) + 1]++] = rank;
}

namespace {

void check_grouping(const Groups& shape) {
  const Grouping& grouping = *shape.grouping;
  const auto lanes = static_cast<std::size_t>(grouping.lanes);
  const auto nodes = static_cast<std::size_t>(shape.map.nodes());
  bool fits = grouping.lanes >= 1 && grouping.lanes <= kMostLanes &&
              grouping.lane_of.size() == shape.map.node_of.size() &&
              grouping.leaders.size() == nodes * lanes;
  for (const std::uint8_t lane : grouping.lane_of) fits = fits && lane < grouping.lanes;
  for (std::size_t i = 0; fits && i < grouping.leaders.size(); ++i) {
    const int size = shape.map.node_size(static_cast<int>(i / lanes));
    fits = grouping.leaders[i] >= 0 && grouping.leaders[i] < size;
  }
  if (!fits) {
    throw std::invalid_argument(
        "the grouping of the shape does not name one lane for every rank and one rank of every "
        "node for every lane");
  }
}

void check_switches(const Shape& shape) {
  const Switches& switches = *shape.switches;
  const int nodes = shape.map.nodes();
  bool fits = static_cast<int>(switches.leaf_of.size()) == nodes;
  std::size_t leaves = 0;  // an array by leaf has so many entries
  for (const int leaf : switches.leaf_of) {
    fits = fits && leaf >= 0 && leaf < nodes;
    leaves = std::max(leaves, static_cast<std::size_t>(leaf) + 1);
  }
  if (fits && !switches.chassis_of.empty()) {
    fits = switches.chassis_of.size() == leaves;
    for (const int chassis : switches.chassis_of) fits = fits && chassis >= 0 && chassis < nodes;
  }
  if (!fits) {
    throw std::invalid_argument(
        "the switches of the shape do not name one leaf for every node, and one chassis for every "
        "leaf or none at all, by numbers below that of the nodes");
  }
}

}  // namespace

void check_shape(const Shape& shape, int rank) {
  const std::size_t ranks = shape.map.node_of.size();
  if (shape.bytes.size() != ranks || shape.receive_offsets.size() != ranks) {
    throw std::invalid_argument("the shape has " + std::to_string(ranks) + " ranks, but " +
                                std::to_string(shape.bytes.size()) + " block sizes and " +
                                std::to_string(shape.receive_offsets.size()) + " receive offsets");
  }
  if (rank < 0 || rank >= shape.ranks()) {
    throw std::invalid_argument("rank " + std::to_string(rank) + " is not one of the " +
                                std::to_string(ranks) + " ranks of the shape");
  }
  if (shape.ports < 1 || shape.ports > kLargestPorts || shape.leaders < 1) {
    throw std::invalid_argument("a shape has 1 to " + std::to_string(kLargestPorts) +
                                " ports and at least one leader, not " +
                                std::to_string(shape.ports) + " and " +
                                std::to_string(shape.leaders));
  }
  if (shape.grouping) check_grouping(shape);
  if (shape.switches) check_switches(shape);
}

Shape packed_shape(NodeMap map, std::vector<std::uint64_t> bytes, int ports, int leaders) {
  Shape shape;
  shape.map = std::move(map);
  shape.leaders = leaders;
  shape.bytes = std::move(bytes);
  shape.ports = ports;
  shape.receive_offsets.reserve(shape.bytes.size());
  std::uint64_t offset = 0;
  for (const std::uint64_t block : shape.bytes) {
    shape.receive_offsets.push_back(offset);
    offset += block;
  }
  return shape;
}

Shape uniform_shape(NodeMap map, std::uint64_t bytes, int ports, int leaders) {
  const std::size_t ranks = map.node_of.size();
  return packed_shape(std::move(map), std::vector<std::uint64_t>(ranks, bytes), ports, leaders);
}

}  // namespace allrail::schedule
