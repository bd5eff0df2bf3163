#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
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
  int largest_node = 0;
};

/// Who leads and who is led, where that does not follow from the order of the ranks. A lane is a
/// group of ranks on every node, and one rank there that leads it; on a node with fewer ranks than
/// lanes a rank leads several, and groups may be empty. Every rank is in one group.
struct Grouping {
  int lanes = 1;
  std::vector<std::uint8_t> lane_of;  // by rank: the group that it is in
  std::vector<std::int32_t> leaders;  // local ranks, by node * lanes + lane
};
inline constexpr int kMostLanes = 64;

/// Whether every rank may talk for itself to all ranks of other nodes: where nodes have one rank,
/// or that makes few links. It makes more only for who names a flat form.
bool ranks_may_talk(const NodeMap& map);

/// Which nodes hang on the same leaf switch, and which of these switches are in one chassis. Both
/// are numbered from 0; a number that nobody has is no switch.
struct Switches {
  std::vector<int> leaf_of;       // by node
  std::vector<int> chassis_of{};  // by leaf; empty: no chassis is known

  int leaves() const;
  /// Leaves on which at least two nodes hang.
  int shared_leaves() const;
};
/// Numbers from 0, in the order in which the names are first met.
std::vector<int> numbers_of(std::span<const std::string> names);

/// Ranks on nodes, and who of them leads whom.
struct Groups {
  NodeMap map;
  int leaders = 1;  // asked for; see lanes()
  // Null: the ranks of a node are cut into contiguous groups whose sizes differ by at most one, and
  // the first rank of a group leads it.
  std::shared_ptr<const Grouping> grouping{};
  // For the cost model: every rank stands for several of a node, and gives before it puts as they
  // do, though it is alone.
  bool stands_for_several = false;

  int ranks() const { return map.ranks(); }
  /// Whether no other rank is on the node of `rank`, or is stood for by it.
  bool alone_on_node(int rank) const {
    return map.node_size(map.node_of[static_cast<std::size_t>(rank)]) == 1 && !stands_for_several;
  }
  /// Leaders per node, the same on all nodes: never more than the largest node has ranks.
  int lanes() const;
  /// The local rank that leads `lane` on `node`.
  int leader(int node, int lane) const;
  /// The rank that talks to other nodes where one does for all: it leads the first lane.
  int talking_rank(int node) const { return map.ranks_of[node][leader(node, 0)]; }
  /// The lane of the group that a rank is in.
  int lane_of(int rank) const;
};

struct Shape : Groups {
  std::vector<std::uint64_t> bytes;            // bytes of every rank's block
  std::vector<std::uint64_t> receive_offsets;  // where every rank's block goes in my receive buffer
  int ports = 1;                               // k of the k-port model
  // Lanes begin at multiples of this in the slot; 0: they follow each other.
  std::uint64_t lane_bytes = 0;
  std::uint64_t segment_bytes = 0;  // of a pipeline's pieces; 0: as it finds best
  // Null: nothing is known of them, and algorithms that go by switches take their flat form.
  std::shared_ptr<const Switches> switches{};
};

/// The ranks of all groups, for as long as a schedule is made.
class GroupTable {
 public:
  explicit GroupTable(const Groups& groups);
  /// In rank order.
  std::span<const int> ranks(int node, int lane) const {
    const auto group = static_cast<std::size_t>(node) * lanes_ + static_cast<std::size_t>(lane);
    return std::span(ranks_).subspan(starts_[group], starts_[group + 1] - starts_[group]);
  }

 private:
  std::size_t lanes_;
  std::vector<std::size_t> starts_;  // by node * lanes + lane, and the end
  std::vector<int> ranks_;
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
