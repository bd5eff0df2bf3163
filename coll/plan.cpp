#include "coll/plan.hpp"

#include <algorithm>
#include <numeric>

#include "coll/allgather/allgather.hpp"
#include "coll/ready_token.hpp"
#include "coll/schedule/lower.hpp"
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
      algorithm_(algorithm_named(request.algorithm)),
      ports_(request.ports),
      leaders_(is_node_shared(request.memory) ? 1 : request.leaders),
      blocks_(request.bytes),
      largest_block_(*std::ranges::max_element(request.bytes)) {
  if (request.displaced) receive_offsets_ = request.receive_offsets;
  const schedule::NodeMap map = roster.map();
  node_shared_ = is_node_shared(request.memory);
  straight_ = node_shared_ && goes_straight_to_nodes(request, map, limits);
  zero_copy_ = node_shared_ ? straight_ && map.nodes() > 1 : goes_straight(request, map, limits);
  registered_bytes_ =
      node_shared_ ? 0
      : request.memory == MemoryKind::Buffer
          ? largest_block_
          : std::accumulate(request.bytes.begin(), request.bytes.end(), largest_block_);
  copies_because_of_limit_ = zero_copy_ && registered_bytes_ > limits.registered_bytes;
  zero_copy_ = zero_copy_ && !copies_because_of_limit_;
  description_.bytes = largest_block_;
  description_.operation = request.operation;
  description_.algorithm = static_cast<std::uint32_t>(&algorithm_ - allgather::algorithms().data());
  description_.memory = request.memory;
  hash_ = mix(static_cast<std::uint64_t>(request.operation), description_.algorithm);
  // At every size, also where the kind changes nothing: that a call is right may not depend on it.
  hash_ = mix(hash_, static_cast<std::uint64_t>(request.memory));
  for (const std::uint64_t bytes : request.bytes) hash_ = mix(hash_, bytes);
  hash_ = mix(hash_, zero_copy_ ? 1 : 0);
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
  if (map.nodes() == 1) return true;  // no rail and no slot is needed
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
  if (slices_ == 1) {
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
  if (zero_copy_) return kTokenBytes * static_cast<std::uint64_t>(map.nodes() + 1);
  if (straight_) return 0;
  std::vector<std::uint64_t> bytes(blocks_);
  for (auto& block : bytes) block = std::min(block, slice_bytes);
  const auto shape = schedule::packed_shape(map, std::move(bytes), ports_, leaders_);
  if (algorithm_.level == allgather::Level::Flat) {
    return schedule::flat_part_bytes(shape) * static_cast<std::uint64_t>(roster_.largest_node());
  }
  // A bound that does not need the schedule: every group's region on every node.
  std::uint64_t total = 0;
  for (const std::uint64_t block : shape.bytes) total += block;
  const auto regions =
      static_cast<std::uint64_t>(map.nodes()) * static_cast<std::uint64_t>(shape.lanes());
  return total + regions * 2 * schedule::kHeaderBytes;
}

void CallPlan::choose_slices(const schedule::NodeMap& map, const PlanLimits& limits) {
  // What goes straight into a NodeBuffer is cut into puts, not into slices.
  const std::uint64_t limit = zero_copy_ && !straight_ ? kLargestPutBytes : largest_block_;
  slice_bytes_ = std::min(largest_block_, limit);
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
  std::vector<std::uint64_t> bytes = bytes_of_slice(slice);
  std::vector<std::uint64_t> whole(blocks_);
  bytes.resize(static_cast<std::size_t>(map.ranks()), bytes.back());
  whole.resize(static_cast<std::size_t>(map.ranks()), whole.back());
  auto shape = schedule::packed_shape(map, std::move(whole), ports_, leaders_);
  if (!receive_offsets_.empty()) shape.receive_offsets = receive_offsets_;
  shape.bytes = std::move(bytes);
  const int rank = roster_.rank();
  if (straight_) {
    schedule::Schedule bare =
        allgather::make_node_shared_schedule(algorithm_, shape, rank, kLargestPutBytes);
    return zero_copy_ ? with_ready_tokens(bare, map, rank) : bare;
  }
  if (node_shared_) return allgather::make_copied_node_shared_schedule(algorithm_, shape, rank);
  if (!zero_copy_) return allgather::make_schedule(algorithm_, shape, rank);
  return with_ready_tokens(allgather::make_zero_copy_schedule(algorithm_, shape, rank), map, rank);
}

std::shared_ptr<const schedule::Schedule> CallPlan::schedule(std::uint64_t slice) const {
  if (slice < kept_.size()) return kept_[slice];
  if (slice == 0 || bytes_of_slice(slice) == bytes_of_slice(0)) return first_;
  return std::make_shared<schedule::Schedule>(make_schedule(roster_.map(), slice));
}

void CallPlan::keep_all_slices() {
  if (slices_ == 1) return;
  std::vector<std::shared_ptr<const schedule::Schedule>> kept;
  for (std::uint64_t slice = 0; slice < slices_; ++slice) {
    const bool as_before = slice > 0 && bytes_of_slice(slice) == bytes_of_slice(slice - 1);
    kept.push_back(as_before ? kept.back() : schedule(slice));
  }
  kept_ = std::move(kept);
}

namespace {

/// Adds the steps of ready tokens to a schedule without them.
class ReadyTokens {
 public:
  ReadyTokens(const schedule::Schedule& bare, const schedule::NodeMap& map, int rank)
      : bare_(bare), map_(map), rank_(rank), expects_token_(nodes(), false) {
    for (const Step& step : bare.steps) {
      if (step.kind == StepKind::Put) expects_token_[node_of(step.peer)] = true;
    }
    result_.rounds = bare.rounds;
    result_.stages = bare.stages;
    result_.slot_bytes = kTokenBytes * (nodes() + 1);
  }

  schedule::Schedule run() {
    const auto is = [this](StepKind kind) {
      return std::ranges::find(bare_.steps, kind, &Step::kind) != bare_.steps.end();
    };
    const bool talks = is(StepKind::Put) || is(StepKind::Await);
    if (talks && !is(StepKind::Stamp)) tell_peers();
    for (const Step& step : bare_.steps) {
      if (step.kind == StepKind::Stamp) {
        tell_peers();
        continue;
      }
      // A peer sends its token before its data, so the token is awaited before the data too.
      if ((step.kind == StepKind::Put || step.kind == StepKind::Await) &&
          expects_token_[node_of(step.peer)]) {
        expects_token_[node_of(step.peer)] = false;
        await_token(step);
      }
      result_.steps.push_back(step);
    }
    return std::move(result_);
  }

 private:
  using Step = schedule::Step;
  using StepKind = schedule::StepKind;

  std::size_t nodes() const { return static_cast<std::size_t>(map_.nodes()); }
  std::size_t node_of(int peer) const {
    return static_cast<std::size_t>(map_.node_of[static_cast<std::size_t>(peer)]);
  }
  std::uint64_t token_of(int peer) const { return kTokenBytes * (node_of(peer) + 1); }

  void tell_peers() {
    Step stamp;
    stamp.kind = StepKind::Stamp;
    stamp.to = schedule::Memory::Slot;
    stamp.bytes = schedule::kHeaderBytes;
    result_.steps.push_back(stamp);
    std::vector<bool> told(nodes(), false);
    for (const Step& step : bare_.steps) {
      if (step.kind != StepKind::Await || told[node_of(step.peer)]) continue;
      told[node_of(step.peer)] = true;
      Step put;
      put.kind = StepKind::Put;
      put.from = put.to = schedule::Memory::Slot;
      put.peer = step.peer;
      put.to_offset = token_of(rank_);
      put.bytes = kTokenBytes;
      result_.steps.push_back(put);
    }
  }

  void await_token(const Step& before) {
    Step await;
    await.kind = StepKind::Await;
    await.to = schedule::Memory::Slot;
    await.peer = before.peer;
    await.from_offset = await.to_offset = token_of(before.peer);
    await.bytes = kTokenBytes;
    await.round = before.round;
    result_.steps.push_back(await);
  }

  const schedule::Schedule& bare_;
  const schedule::NodeMap& map_;
  const int rank_;
  std::vector<bool> expects_token_;  // by node
  schedule::Schedule result_;
};

}  // namespace

schedule::Schedule with_ready_tokens(const schedule::Schedule& bare, const schedule::NodeMap& map,
                                     int rank) {
  return ReadyTokens(bare, map, rank).run();
}

}  // namespace allrail::coll
