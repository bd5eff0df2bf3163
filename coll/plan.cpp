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
      leaders_(request.leaders),
      blocks_(request.bytes),
      largest_block_(*std::ranges::max_element(request.bytes)) {
  if (request.displaced) receive_offsets_ = request.receive_offsets;
  const bool in_buffer = request.memory == MemoryKind::Buffer;
  zero_copy_ = algorithm_.zero_copy && roster.largest_node() == 1 && roster.nodes() > 1 &&
               !request.displaced &&
               largest_block_ >=
                   (in_buffer ? limits.buffer_threshold_bytes : limits.zero_copy_threshold_bytes);
  registered_bytes_ =
      in_buffer ? largest_block_
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
  const schedule::NodeMap map = roster.map();
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
  if (zero_copy_) return kTokenBytes * static_cast<std::uint64_t>(map.ranks() + 1);
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
  const std::uint64_t limit = zero_copy_ ? kLargestPutBytes : largest_block_;
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
  if (!zero_copy_) return allgather::make_schedule(algorithm_, shape, roster_.rank());
  return with_ready_tokens(allgather::make_zero_copy_schedule(algorithm_, shape, roster_.rank()),
                           map.ranks(), roster_.rank());
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

schedule::Schedule with_ready_tokens(const schedule::Schedule& bare, int ranks, int rank) {
  using schedule::Memory;
  using schedule::Step;
  using schedule::StepKind;
  const auto token_of = [](int peer) { return kTokenBytes * static_cast<std::uint64_t>(peer + 1); };
  const auto index_of = [](int peer) { return static_cast<std::size_t>(peer); };
  schedule::Schedule result;
  result.rounds = bare.rounds;
  result.stages = bare.stages;
  result.slot_bytes = kTokenBytes * static_cast<std::uint64_t>(ranks + 1);

  std::vector<bool> told(static_cast<std::size_t>(ranks), false);
  std::vector<bool> expects_token(static_cast<std::size_t>(ranks), false);
  for (const Step& step : bare.steps) {
    if (step.kind == StepKind::Put) expects_token[index_of(step.peer)] = true;
  }
  Step stamp;
  stamp.kind = StepKind::Stamp;
  stamp.to = Memory::Slot;
  stamp.bytes = schedule::kHeaderBytes;
  result.steps.push_back(stamp);
  for (const Step& step : bare.steps) {
    if (step.kind != StepKind::Await || told[index_of(step.peer)]) continue;
    told[index_of(step.peer)] = true;
    Step put;
    put.kind = StepKind::Put;
    put.from = put.to = Memory::Slot;
    put.peer = step.peer;
    put.to_offset = token_of(rank);
    put.bytes = kTokenBytes;
    result.steps.push_back(put);
  }
  for (const Step& step : bare.steps) {
    const bool puts_to = step.kind == StepKind::Put;
    // A peer sends its token before its data, so the token is awaited before the data too.
    if ((puts_to || step.kind == StepKind::Await) && expects_token[index_of(step.peer)]) {
      expects_token[index_of(step.peer)] = false;
      Step await;
      await.kind = StepKind::Await;
      await.to = Memory::Slot;
      await.peer = step.peer;
      await.from_offset = await.to_offset = token_of(step.peer);
      await.bytes = kTokenBytes;
      await.round = step.round;
      result.steps.push_back(await);
    }
    result.steps.push_back(step);
  }
  return result;
}

}  // namespace allrail::coll
