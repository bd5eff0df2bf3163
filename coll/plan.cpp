#include "coll/plan.hpp"

#include <algorithm>
#include <numeric>

#include "coll/allgather/allgather.hpp"
#include "coll/ready_token.hpp"
#include "coll/recipe.hpp"
#include "coll/schedule/lower.hpp"
#include "coll/slots.hpp"
#include "coll/with_ready_tokens.hpp"
#include "lib/base/error.hpp"
#include "transport/rail.hpp"

namespace allrail::coll {

const char* operation_name(Operation operation) noexcept {
  switch (operation) {
    case Operation::Barrier:
      return "barrier";
    case Operation::Allgather:
      return "allgather";
    case Operation::Allgatherv:
      return "allgatherv";
    case Operation::Allocate:
      return "allocate";
    case Operation::Split:
      return "split";
    case Operation::Gather:
      return "gather";
    case Operation::Gatherv:
      return "gatherv";
    case Operation::Scatter:
      return "scatter";
    case Operation::Scatterv:
      return "scatterv";
    case Operation::Broadcast:
      return "broadcast";
    case Operation::Alltoall:
      return "alltoall";
    case Operation::Alltoallv:
      return "alltoallv";
  }
  return "unknown operation";
}

namespace {

// A zero-copy put is one put of the fabric, which has at most 1,024 chunks of up to 1 MiB.
constexpr std::uint64_t kLargestPutBytes = std::uint64_t{512} << 20;
// A pair can have 256 puts queued: a transfer that is cut into more would stand still before its
// awaits, as its peer would.
constexpr std::uint64_t kMostRunsPerTransfer = 64;

const allgather::Algorithm& algorithm_named(const std::string& name) {
  const allgather::Algorithm* found = allgather::find_algorithm(name);
  if (found == nullptr) {
    std::string names;
    for (const auto& algorithm : allgather::algorithms()) {
      names += names.empty() ? "" : ", ";
      names += algorithm.name;
    }
    base::fail(Code::InvalidArgument, "there is no allgather algorithm '{}'; there are: {}", name,
               names);
  }
  return *found;
}

}  // namespace

CallPlan::CallPlan(const PlanRequest& request, const Roster& roster, const PlanLimits& limits)
    : roster_(roster),
      recipe_(make_recipe(request, roster)),
      algorithm_(recipe_ ? allgather::algorithms().front() : algorithm_named(request.algorithm)),
      ports_(request.ports),
      leaders_(is_node_shared(request.memory) ? 1 : request.leaders),
      blocks_(request.bytes),
      largest_block_(*std::ranges::max_element(request.bytes)) {
  send_is_mapped_ = request.send_is_mapped;
  if (request.displaced) receive_offsets_ = request.receive_offsets;
  const schedule::NodeMap map = roster.map();
  registered_bytes_ =
      is_node_shared(request.memory) ? 0
      : request.memory == MemoryKind::Buffer
          ? largest_block_
          : std::accumulate(request.bytes.begin(), request.bytes.end(), largest_block_);
  way_ = choose_way(request, map, limits);
  if (way_ == Way::Straight && registered_bytes_ > limits.registered_bytes) {
    way_ = Way::ThroughSlots;
    copies_because_of_limit_ = true;
  }
  description_.bytes = largest_block_;
  description_.operation = request.operation;
  description_.algorithm =
      recipe_ ? recipe_->algorithm()
              : static_cast<std::uint32_t>(&algorithm_ - allgather::algorithms().data());
  description_.memory = request.memory;
  description_.root = request.root;
  hash_ = mix(static_cast<std::uint64_t>(request.operation), description_.algorithm);
  // At every size, also where the kind changes nothing: that a call is right may not depend on it.
  hash_ = mix(hash_, static_cast<std::uint64_t>(request.memory));
  for (const std::uint64_t bytes : request.bytes) hash_ = mix(hash_, bytes);
  hash_ = mix(hash_, static_cast<std::uint64_t>(way_));
  for (const std::uint64_t bytes : request.matrix) hash_ = mix(hash_, bytes);
  hash_ = mix(hash_, static_cast<std::uint64_t>(request.root));
  hash_ = mix(hash_, static_cast<std::uint64_t>(request.ports) << 32 |
                         static_cast<std::uint64_t>(request.leaders));
  choose_slices(map, limits);
  schedule::Schedule first = make_schedule(map, 0);
  first.steps.shrink_to_fit();
  first_ = std::make_shared<schedule::Schedule>(std::move(first));
  for (const schedule::Step& step : first_->steps) {
    if (step.kind == schedule::StepKind::Put || step.kind == schedule::StepKind::Await) {
      peers_.push_back(step.peer);
    }
  }
  std::ranges::sort(peers_);
  peers_.erase(std::unique(peers_.begin(), peers_.end()), peers_.end());
  peers_.shrink_to_fit();
  keep_what_later_slices_need();
}

CallPlan::~CallPlan() = default;

CallPlan::Way CallPlan::choose_way(const PlanRequest& request, const schedule::NodeMap& map,
                                   const PlanLimits& limits) const {
  if (recipe_) return Way::ThroughSlots;
  if (map.nodes() == 1 && algorithm_.level == allgather::Level::Smp &&
      !is_node_shared(request.memory) && largest_block_ <= schedule::kLineBytes) {
    return Way::InLines;
  }
  if (reads_from_peers(request, map, limits)) return Way::FromPeers;
  if (!is_node_shared(request.memory)) {
    return goes_straight(request, map, limits) ? Way::Straight : Way::ThroughSlots;
  }
  if (map.nodes() == 1) return Way::WithinNode;
  return goes_straight_to_nodes(request, map, limits) ? Way::StraightToNodes
                                                      : Way::ThroughSlotsToNodes;
}

bool CallPlan::reads_from_peers(const PlanRequest& request, const schedule::NodeMap& map,
                                const PlanLimits& limits) const {
  if (map.nodes() > 1 || map.ranks() == 1 || is_node_shared(request.memory)) return false;
  if (algorithm_.level == allgather::Level::Flat) return false;  // named: it is wanted as it is
  return largest_block_ >= (request.memory == MemoryKind::Buffer
                                ? limits.mapped_threshold_bytes
                                : limits.single_copy_threshold_bytes);
}

bool CallPlan::goes_straight(const PlanRequest& request, const schedule::NodeMap& map,
                             const PlanLimits& limits) const {
  return algorithm_.zero_copy && roster_.largest_node() == 1 && map.nodes() > 1 &&
         !request.displaced &&
         largest_block_ >= (request.memory == MemoryKind::Buffer
                                ? limits.buffer_threshold_bytes
                                : limits.zero_copy_threshold_bytes);
}

bool CallPlan::goes_straight_to_nodes(const PlanRequest& request, const schedule::NodeMap& map,
                                      const PlanLimits& limits) const {
  if (request.memory != MemoryKind::NodeBuffer || request.displaced ||
      !allgather::is_straight_between_nodes(algorithm_) ||
      largest_block_ * static_cast<std::uint64_t>(roster_.largest_node()) <
          limits.node_buffer_threshold_bytes) {
    return false;
  }
  const auto shape = schedule::packed_shape(map, request.bytes, ports_, 1);
  return schedule::most_runs_per_transfer(algorithm_.exchange, shape) <= kMostRunsPerTransfer;
}

void CallPlan::keep_what_later_slices_need() {
  if (slices_ == 1 || recipe_) {
    receive_offsets_.clear();
    blocks_.clear();
  } else if (std::ranges::equal(blocks_.begin() + 1, blocks_.end(), blocks_.begin(),
                                blocks_.end() - 1)) {
    blocks_.resize(1);
  }
  receive_offsets_.shrink_to_fit();
  blocks_.shrink_to_fit();
}

std::uint64_t CallPlan::slot_bytes_for(const schedule::NodeMap& map,
                                       std::uint64_t slice_bytes) const {
  if (recipe_) return recipe_->slot_bytes(slice_bytes);
  if (zero_copy()) return kTokenBytes * static_cast<std::uint64_t>(map.nodes() + 1);
  if (way_ == Way::WithinNode || way_ == Way::FromPeers || way_ == Way::InLines) return 0;
  std::vector<std::uint64_t> bytes(blocks_);
  for (auto& block : bytes) block = std::min(block, slice_bytes);
  auto shape = schedule::packed_shape(map, std::move(bytes), ports_, leaders_);
  if (lane_bytes_ > 0) {
    shape.grouping = roster_.grouping(leaders_);
    const auto lanes = static_cast<std::uint64_t>(shape.lanes());
    return schedule::largest_lane_bytes(shape) <= lane_bytes_ ? lanes * lane_bytes_ : UINT64_MAX;
  }
  if (algorithm_.level == allgather::Level::Flat) {
    return schedule::flat_part_bytes(shape) * static_cast<std::uint64_t>(roster_.largest_node());
  }
  if (algorithm_.level == allgather::Level::MultiLeader) {
    shape.grouping = roster_.grouping(leaders_);
    return schedule::multi_leader_slot_bytes(shape, algorithm_.gather);
  }
  // A bound that does not need the schedule: every group's region on every node.
  std::uint64_t total = 0;
  for (const std::uint64_t block : shape.bytes) total += block;
  const auto regions =
      static_cast<std::uint64_t>(map.nodes()) * static_cast<std::uint64_t>(shape.lanes());
  return total + regions * 2 * schedule::kHeaderBytes;
}

void CallPlan::part_slot(const schedule::NodeMap& map, const PlanLimits& limits) {
  const auto grouping = roster_.grouping(leaders_);
  if (algorithm_.level != allgather::Level::Smp || way_ != Way::ThroughSlots ||
      grouping == nullptr || grouping->lanes == 1 ||
      slot_bytes_for(map, largest_block_) <= limits.small_slot_bytes) {
    return;
  }
  lane_bytes_ = lane_bytes(limits.large_slot_bytes, grouping->lanes);
  if (slot_bytes_for(map, 0) == UINT64_MAX) lane_bytes_ = 0;
}

void CallPlan::choose_slices(const schedule::NodeMap& map, const PlanLimits& limits) {
  // What goes straight into a NodeBuffer is cut into puts, not into slices.
  const std::uint64_t limit = way_ == Way::Straight ? kLargestPutBytes : largest_block_;
  slice_bytes_ = std::min(largest_block_, limit);
  part_slot(map, limits);
  if (slot_bytes_for(map, 0) > limits.large_slot_bytes) {
    base::fail(
        Code::ResourceLimit,
        "{} ranks on {} nodes need {} bytes of slot memory for headers alone, a slot has {}; "
        "raise ALLRAIL_NODE_MEMORY",
        map.ranks(), map.nodes(), slot_bytes_for(map, 0), limits.large_slot_bytes);
  }
  if (slot_bytes_for(map, slice_bytes_) > limits.large_slot_bytes) {
    // Slices so small that a second and third one can be under way while the first is read.
    std::uint64_t low = 0;
    std::uint64_t high = slice_bytes_;
    while (low + 1 < high) {
      const std::uint64_t middle = low + (high - low) / 2;
      (slot_bytes_for(map, middle) <= limits.large_slot_bytes ? low : high) = middle;
    }
    slice_bytes_ = low >= 8192 ? low / 4096 * 4096 : std::max<std::uint64_t>(low, 1);
  }
  slices_ = slice_bytes_ == 0 ? 1 : (largest_block_ + slice_bytes_ - 1) / slice_bytes_;
  slot_bytes_ = slot_bytes_for(map, slice_bytes_);
}

std::vector<std::uint64_t> CallPlan::bytes_of_slice(std::uint64_t slice) const {
  const std::uint64_t begin = slice * slice_bytes_;
  std::vector<std::uint64_t> bytes(blocks_);
  for (auto& block : bytes) block = block > begin ? std::min(block - begin, slice_bytes_) : 0;
  return bytes;
}

schedule::Schedule CallPlan::make_schedule(const schedule::NodeMap& map,
                                           std::uint64_t slice) const {
  if (recipe_) return recipe_->make(slice * slice_bytes_, slice_bytes_);
  std::vector<std::uint64_t> bytes = bytes_of_slice(slice);
  std::vector<std::uint64_t> whole(blocks_);
  bytes.resize(static_cast<std::size_t>(map.ranks()), bytes.back());
  whole.resize(static_cast<std::size_t>(map.ranks()), whole.back());
  auto shape = schedule::packed_shape(map, std::move(whole), ports_, leaders_);
  if (!receive_offsets_.empty()) shape.receive_offsets = receive_offsets_;
  shape.bytes = std::move(bytes);
  const int rank = roster_.rank();
  switch (way_) {
    case Way::ThroughSlots:
      if (algorithm_.level != allgather::Level::Flat) shape.grouping = roster_.grouping(leaders_);
      shape.lane_bytes = lane_bytes_;
      return allgather::make_schedule(algorithm_, shape, rank);
    case Way::Straight:
      return with_ready_tokens(allgather::make_zero_copy_schedule(algorithm_, shape, rank), map,
                               rank);
    case Way::ThroughSlotsToNodes:
      return allgather::make_copied_node_shared_schedule(algorithm_, shape, rank);
    case Way::StraightToNodes:
      return with_ready_tokens(
          allgather::make_node_shared_schedule(algorithm_, shape, rank, kLargestPutBytes), map,
          rank);
    case Way::InLines:
      return schedule::lower_in_lines(shape, rank);
    case Way::FromPeers: {
      const bool in_result = description_.memory == MemoryKind::Buffer && !send_is_mapped_;
      return schedule::lower_from_peers(
          shape, rank, in_result ? schedule::Memory::Receive : schedule::Memory::Send);
    }
    case Way::WithinNode:
      return allgather::make_node_shared_schedule(algorithm_, shape, rank, kLargestPutBytes);
  }
  return {};
}

bool CallPlan::are_alike(std::uint64_t slice, std::uint64_t other) const {
  if (slice == other) return true;
  if (!recipe_) return bytes_of_slice(slice) == bytes_of_slice(other);
  const auto is_whole = [this](std::uint64_t one) {
    return (one + 1) * slice_bytes_ <= largest_block_;
  };
  return recipe_->is_uniform() && is_whole(slice) && is_whole(other);
}

std::shared_ptr<const schedule::Schedule> CallPlan::schedule(std::uint64_t slice) const {
  if (slice < kept_.size()) return kept_[slice];
  if (are_alike(slice, 0)) return first_;
  return std::make_shared<schedule::Schedule>(make_schedule(roster_.map(), slice));
}

void CallPlan::keep_all_slices() {
  if (slices_ == 1) return;
  std::vector<std::shared_ptr<const schedule::Schedule>> kept;
  for (std::uint64_t slice = 0; slice < slices_; ++slice) {
    const bool as_before = slice > 0 && are_alike(slice, slice - 1);
    kept.push_back(as_before ? kept.back() : schedule(slice));
  }
  kept_ = std::move(kept);
}

}  // namespace allrail::coll
