#pragma once

#include <cstdint>
#include <vector>

// Who takes part in a call and how large the blocks are: all that a schedule depends on.
namespace allrail::schedule {

/// Which ranks share which node, computed once per communicator. Nodes are numbered 0..nodes-1; the
/// ranks of a node are in rank order, whatever the map (cyclic, irregular).
struct NodeMap {
  NodeMap() = default;
  /// `node_of[rank]` for every rank; every node number from 0 to the largest must occur.
  explicit NodeMap(std::vector<int> node_of);

  int ranks() const { return static_cast<int>(node_of.size()); }
  int nodes() const { return static_cast<int>(ranks_of.size()); }
  int node_size(int node) const { return static_cast<int>(ranks_of[node].size()); }

  std::vector<int> node_of;                // by rank
  std::vector<int> local_rank_of;          // by rank
  std::vector<std::vector<int>> ranks_of;  // by node, in rank order
  int smallest_node = 0;                   // ranks on the smallest node
};

/// The first rank of every group leads it: lane l is leader l of every node. The ranks of a node
/// are cut into `lanes` contiguous groups whose sizes differ by at most one.
struct Group {
  int first;  // local rank of the leader
  int count;
};

struct Shape {
  std::vector<std::uint64_t> bytes;            // bytes of every rank's block
  std::vector<std::uint64_t> receive_offsets;  // where every rank's block goes in my receive buffer
  NodeMap map;
  int ports = 1;    // k of the k-port model
  int leaders = 1;  // asked for; see lanes()

  int ranks() const { return map.ranks(); }
  /// Leaders per node that can be had: never more than the smallest node has ranks.
  int lanes() const;
  /// Group `lane` of `node`; lane_of_local() is the group that local rank `local` belongs to.
  Group group(int node, int lane) const;
  int lane_of_local(int node, int local) const;
};

/// Ports are counted in 16 bits in a step.
inline constexpr int kLargestPorts = 65535;

/// Throws std::invalid_argument with a sentence when the parts of the shape do not fit together or
/// `rank` is not one of its ranks. Every function that makes a schedule calls it first.
void check_shape(const Shape& shape, int rank);

/// Blocks of `bytes` each, packed in rank order.
Shape uniform_shape(NodeMap map, std::uint64_t bytes, int ports, int leaders);
/// Blocks of these sizes, packed in rank order.
Shape packed_shape(NodeMap map, std::vector<std::uint64_t> bytes, int ports, int leaders);

}  // namespace allrail::schedule
