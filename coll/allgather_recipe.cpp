#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "coll/ready_token.hpp"
#include "coll/recipe.hpp"
#include "coll/schedule/lower.hpp"
#include "coll/slots.hpp"
#include "coll/with_ready_tokens.hpp"

namespace allrail::coll {
namespace {

// A pair can have 256 puts queued: a transfer that is cut into more would stand still before its
// awaits, as its peer would.
constexpr std::uint64_t kMostRunsPerTransfer = 64;

/// Which way the data of an allgather goes, the same on all ranks.
enum class Way : std::uint8_t {
  ThroughSlots,         // copied into slots and out of them
  Straight,             // between user buffers by rail, after ready tokens
  ThroughSlotsToNodes,  // likewise, and then once into the NodeBuffer
  StraightToNodes,      // between NodeBuffers by rail, after ready tokens
  InLines,              // in the lines of the flags of the only node
  FromPeers,            // read where it lies by the ranks of the only node
  WithinNode,           // into the NodeBuffer of the only node, without rail and slot
  WithinNodeOnce,       // likewise through the slot, by one rank for all
};

bool goes_straight_to_nodes(const PlanRequest& request, const allgather::Algorithm& algorithm,
                            const schedule::NodeMap& map, const PlanLimits& limits) {
  if (request.memory != MemoryKind::NodeBuffer || request.displaced ||
      !allgather::is_straight_between_nodes(algorithm) ||
      *std::ranges::max_element(request.bytes) * static_cast<std::uint64_t>(map.largest_node) <
          limits.node_buffer_threshold_bytes) {
    return false;
  }
  const auto shape = schedule::packed_shape(map, request.bytes, request.ports, 1);
  return schedule::most_runs_per_transfer(algorithm.exchange, shape) <= kMostRunsPerTransfer;
}

/// The way of a call that may register as much memory as it wants.
Way way_of(const PlanRequest& request, const allgather::Algorithm& algorithm,
           const schedule::NodeMap& map, const PlanLimits& limits) {
  const std::uint64_t block = *std::ranges::max_element(request.bytes);
  const bool to_buffer = request.memory == MemoryKind::Buffer;
  if (is_node_shared(request.memory)) {
    if (map.nodes() == 1) {
      const bool by_one = limits.once_bytes > 0 && block <= limits.once_bytes;
      return by_one ? Way::WithinNodeOnce : Way::WithinNode;
    }
    return goes_straight_to_nodes(request, algorithm, map, limits) ? Way::StraightToNodes
                                                                   : Way::ThroughSlotsToNodes;
  }
  if (map.nodes() > 1) {
    const bool is_straight =
        algorithm.zero_copy && map.largest_node == 1 && !request.displaced &&
        block >= (to_buffer ? limits.buffer_threshold_bytes : limits.zero_copy_threshold_bytes);
    return is_straight ? Way::Straight : Way::ThroughSlots;
  }
  if (algorithm.level == schedule::Level::Smp && block <= schedule::kLineBytes) return Way::InLines;
  // A flat algorithm was named: it is wanted as it is.
  const bool reads =
      algorithm.level != schedule::Level::Flat && map.ranks() > 1 &&
      block >= (to_buffer ? limits.mapped_threshold_bytes : limits.single_copy_threshold_bytes);
  return reads ? Way::FromPeers : Way::ThroughSlots;
}

class AllgatherRecipe final : public Recipe {
 public:
  AllgatherRecipe(const PlanRequest& request, const allgather::Algorithm& algorithm,
                  const Roster& roster, const PlanLimits& limits)
      : roster_(roster),
        algorithm_(algorithm),
        ports_(request.ports),
        leaders_(is_node_shared(request.memory) ? 1 : request.leaders),
        reads_results_(request.memory == MemoryKind::Buffer && !request.send_is_mapped),
        blocks_(request.bytes),
        way_(way_of(request, algorithm, roster.map(), limits)) {
    if (std::ranges::adjacent_find(blocks_, std::ranges::not_equal_to()) == blocks_.end()) {
      blocks_.resize(1);
      blocks_.shrink_to_fit();
    }
    if (request.displaced) receive_offsets_ = request.receive_offsets;
    if (way_ == Way::Straight && registered_bytes(request) > limits.registered_bytes) {
      way_ = Way::ThroughSlots;
      copies_because_of_limit_ = true;
    }
    // The tokens of many nodes may need more than a slot has.
    if (zero_copy() && slot_bytes(0) > limits.large_slot_bytes) {
      way_ = way_ == Way::Straight ? Way::ThroughSlots : Way::ThroughSlotsToNodes;
    }
    part_slot(limits);
  }

  std::uint32_t algorithm() const override {
    return static_cast<std::uint32_t>(&algorithm_ - allgather::algorithms().data());
  }
  std::uint32_t way() const override { return static_cast<std::uint32_t>(way_); }
  bool zero_copy() const override { return way_ == Way::Straight || way_ == Way::StraightToNodes; }
  bool copies_because_of_limit() const override { return copies_because_of_limit_; }
  // What goes straight into a NodeBuffer is cut into puts, not into slices.
  std::uint64_t most_slice_bytes() const override {
    return way_ == Way::Straight ? kLargestPutBytes : UINT64_MAX;
  }
  bool are_alike(std::uint64_t begin, std::uint64_t other, std::uint64_t bytes) const override {
    return cut(begin, bytes) == cut(other, bytes);
  }
  schedule::Schedule make(std::uint64_t begin, std::uint64_t bytes) const override;
  std::uint64_t slot_bytes(std::uint64_t slice_bytes) const override;

 private:
  /// Gives every lane its part of a large slot, where that is a matter of memories.
  void part_slot(const PlanLimits& limits);
  /// What the blocks have of a slice.
  std::vector<std::uint64_t> cut(std::uint64_t begin, std::uint64_t bytes) const {
    std::vector<std::uint64_t> sizes(blocks_);
    for (std::uint64_t& block : sizes) block = slice_of(block, begin, bytes);
    return sizes;
  }
  /// One size for every rank.
  std::vector<std::uint64_t> of_all(std::vector<std::uint64_t> sizes) const {
    sizes.resize(static_cast<std::size_t>(roster_.ranks()), sizes.back());
    return sizes;
  }
  schedule::Shape packed(std::vector<std::uint64_t> sizes) const {
    return schedule::packed_shape(roster_.map(), of_all(std::move(sizes)), ports_, leaders_);
  }

  const Roster& roster_;
  const allgather::Algorithm& algorithm_;
  const int ports_;
  const int leaders_;
  const bool reads_results_;           // of the node, where it reads from peers: not what they send
  std::vector<std::uint64_t> blocks_;  // of every rank, or the size that all have
  std::vector<std::uint64_t> receive_offsets_;  // where displaced
  Way way_;
  bool copies_because_of_limit_ = false;
  std::uint64_t lane_bytes_ = 0;  // 0: lanes follow each other
};

std::uint64_t AllgatherRecipe::slot_bytes(std::uint64_t slice_bytes) const {
  if (zero_copy()) return kTokenBytes * static_cast<std::uint64_t>(roster_.nodes() + 1);
  if (way_ == Way::WithinNode || way_ == Way::FromPeers || way_ == Way::InLines) return 0;
  schedule::Shape shape = packed(cut(0, slice_bytes));
  if (way_ == Way::WithinNodeOnce) return schedule::node_shared_once_slot_bytes(shape);
  if (lane_bytes_ > 0) {
    shape.grouping = roster_.grouping(leaders_);
    const auto lanes = static_cast<std::uint64_t>(shape.lanes());
    return schedule::largest_lane_bytes(shape) <= lane_bytes_ ? lanes * lane_bytes_ : UINT64_MAX;
  }
  if (algorithm_.level == schedule::Level::Flat) {
    return schedule::flat_part_bytes(shape) * static_cast<std::uint64_t>(roster_.largest_node());
  }
  if (algorithm_.level == schedule::Level::MultiLeader) {
    shape.grouping = roster_.grouping(leaders_);
    return schedule::multi_leader_slot_bytes(shape, algorithm_.gather);
  }
  // A bound that does not need the schedule: every group's region on every node.
  const auto regions =
      static_cast<std::uint64_t>(roster_.nodes()) * static_cast<std::uint64_t>(shape.lanes());
  return std::accumulate(shape.bytes.begin(), shape.bytes.end(), std::uint64_t{0}) +
         regions * 2 * schedule::kHeaderBytes;
}

void AllgatherRecipe::part_slot(const PlanLimits& limits) {
  const auto grouping = roster_.grouping(leaders_);
  if (algorithm_.level != schedule::Level::Smp || way_ != Way::ThroughSlots ||
      grouping == nullptr || grouping->lanes == 1 ||
      slot_bytes(UINT64_MAX) <= limits.small_slot_bytes) {
    return;
  }
  lane_bytes_ = lane_bytes(limits.large_slot_bytes, grouping->lanes);
  if (slot_bytes(0) == UINT64_MAX) lane_bytes_ = 0;
}

schedule::Schedule AllgatherRecipe::make(std::uint64_t begin, std::uint64_t bytes) const {
  schedule::Shape shape = packed(blocks_);
  if (!receive_offsets_.empty()) shape.receive_offsets = receive_offsets_;
  shape.bytes = of_all(cut(begin, bytes));
  if (algorithm_.level != schedule::Level::Flat) shape.grouping = roster_.grouping(leaders_);
  const int rank = roster_.rank();
  switch (way_) {
    case Way::ThroughSlots:
      shape.lane_bytes = lane_bytes_;
      return allgather::make_schedule(algorithm_, shape, rank);
    case Way::Straight:
      return with_ready_tokens(
          allgather::make_zero_copy_schedule(algorithm_, shape, rank, kLargestPutBytes), shape.map,
          rank);
    case Way::ThroughSlotsToNodes:
      return allgather::make_copied_node_shared_schedule(algorithm_, shape, rank);
    case Way::StraightToNodes:
      return with_ready_tokens(
          allgather::make_node_shared_schedule(algorithm_, shape, rank, kLargestPutBytes),
          shape.map, rank);
    case Way::InLines:
      return schedule::lower_in_lines(shape, rank);
    case Way::FromPeers:
      return schedule::lower_from_peers(
          shape, rank, reads_results_ ? schedule::Memory::Receive : schedule::Memory::Send);
    case Way::WithinNode:
      return allgather::make_node_shared_schedule(algorithm_, shape, rank, kLargestPutBytes);
    case Way::WithinNodeOnce:
      return schedule::lower_node_shared_once(shape, rank);
  }
  return {};
}

}  // namespace

std::unique_ptr<const Recipe> make_allgather_recipe(const PlanRequest& request,
                                                    const allgather::Algorithm& algorithm,
                                                    const Roster& roster,
                                                    const PlanLimits& limits) {
  return std::make_unique<AllgatherRecipe>(request, algorithm, roster, limits);
}

std::uint64_t registered_bytes(const PlanRequest& request) {
  if (is_node_shared(request.memory)) return 0;
  if (request.operation == Operation::Alltoall) {
    return 2 * std::accumulate(request.bytes.begin(), request.bytes.end(), std::uint64_t{0});
  }
  const std::uint64_t largest_block = *std::ranges::max_element(request.bytes);
  if (request.memory == MemoryKind::Buffer) return largest_block;
  return std::accumulate(request.bytes.begin(), request.bytes.end(), largest_block);
}

}  // namespace allrail::coll
