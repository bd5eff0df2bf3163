#include "coll/schedule/shape.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
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
  }
}

int Shape::lanes() const {
  return map.nodes() == 1 ? 1 : std::clamp(leaders, 1, map.smallest_node);
}

Group Shape::group(int node, int lane) const {
  const long long size = map.node_size(node);
  const long long count = lanes();
  const int first = static_cast<int>(lane * size / count);
  return {first, static_cast<int>((lane + 1) * size / count) - first};
}

int Shape::lane_of_local(int node, int local) const {
  const long long size = map.node_size(node);
  // The largest lane whose first local rank, floor(lane * size / lanes), is not above `local`.
  return static_cast<int>(((local + 1LL) * lanes() - 1) / size);
}

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
}

Shape packed_shape(NodeMap map, std::vector<std::uint64_t> bytes, int ports, int leaders) {
  Shape shape{std::move(bytes), {}, std::move(map), ports, leaders};
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
