#include "coll/plan.hpp"

#include <algorithm>

#include "coll/node_walk.hpp"
#include "coll/recipe.hpp"
#include "lib/base/error.hpp"
#include "shm/layout.hpp"

namespace allrail::coll {

const char* operation_name(Operation operation) noexcept {
  switch (operation) {
    case Operation::Barrier:
      return "barrier";
    case Operation::PlannedBarrier:
      return "barrier by a plan";
    case Operation::Allgather:
      return "allgather";
    case Operation::Allgatherv:
      return "allgatherv";
    case Operation::Allocate:
      return "allocate";
    case Operation::Split:
      return "split";
    case Operation::Counts:
      return "the exchange of an alltoallv's counts";
    case Operation::StartUp:
      return "start-up";
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

bool puts_to_nobody_twice(const schedule::Schedule& schedule) {
  std::vector<int> put_to;
  for (const schedule::Step& step : schedule.steps) {
    if (step.kind == schedule::StepKind::Put) put_to.push_back(step.peer);
  }
  std::ranges::sort(put_to);
  return std::ranges::adjacent_find(put_to) == put_to.end();
}

}  // namespace

/// Slices of one recipe.
struct CallPlan::Part {
  explicit Part(CallPart made)
      : recipe(std::move(made.recipe)), begin(made.begin), bytes(made.bytes) {}

  std::uint64_t begin_of(std::uint64_t slice) const {
    return begin + (slice - first_slice) * slice_bytes;
  }
  bool has(std::uint64_t slice) const {
    return slice >= first_slice && slice - first_slice < slices;
  }

  std::unique_ptr<const Recipe> recipe;
  std::uint64_t begin;  // in its blocks
  std::uint64_t bytes;
  std::uint64_t first_slice = 0;
  std::uint64_t slices = 1;
  std::uint64_t slice_bytes = 0;
  std::shared_ptr<const schedule::Schedule> first;  // of its slices
};

CallPlan::CallPlan(const PlanRequest& request, const Roster& roster, const PlanLimits& limits)
    : registered_bytes_(coll::registered_bytes(request)) {
  for (CallPart& made : make_parts(request, roster, limits)) parts_.emplace_back(std::move(made));
  const Recipe& recipe = *parts_.front().recipe;
  zero_copy_ = recipe.zero_copy();
  copies_because_of_limit_ = recipe.copies_because_of_limit();
  description_.bytes = *std::ranges::max_element(request.bytes);
  description_.operation = request.operation;
  description_.algorithm = recipe.algorithm();
  description_.memory = request.memory;
  description_.root = request.root;
  hash_ = mix(static_cast<std::uint64_t>(request.operation), description_.algorithm);
  // At every size, also where the kind changes nothing: that a call is right may not depend on it.
  hash_ = mix(hash_, static_cast<std::uint64_t>(request.memory));
  for (const std::uint64_t bytes : request.bytes) hash_ = mix(hash_, bytes);
  hash_ = mix(hash_, recipe.way());
  // Decides about the way of large calls; only the root of other collectives has displacements.
  if (request.operation == Operation::Allgatherv) hash_ = mix(hash_, request.displaced ? 1 : 0);
  for (const std::uint64_t bytes : request.matrix) hash_ = mix(hash_, bytes);
  // What lies in envelopes begins with words that are not the user's.
  if (request.longest_in_envelope) hash_ = mix(hash_, *request.longest_in_envelope);
  hash_ = mix(hash_, static_cast<std::uint64_t>(request.root));
  hash_ = mix(hash_, static_cast<std::uint64_t>(request.ports) << 32 |
                         static_cast<std::uint64_t>(request.leaders));
  for (Part& part : parts_) {
    choose_slices(part, roster, limits);
    make_first(part, roster);
  }
  first_ = parts_.front().first;
  std::ranges::sort(peers_);
  peers_.erase(std::unique(peers_.begin(), peers_.end()), peers_.end());
  peers_.shrink_to_fit();
  may_coalesce_ =
      description_.root >= 0 && slices_ == 1 && !zero_copy_ && puts_to_nobody_twice(*first_);
  // Every rank of a barrier between nodes takes part in what it spreads (coll/engine_pace.cpp).
  const bool spreads = request.operation == Operation::Barrier && roster.nodes() > 1;
  is_on_node_ = slices_ == 1 && !zero_copy_ && !spreads && coll::is_on_node(*first_);
  slot_order_ = choose_order(roster, limits);
  if (slices_ == 1) parts_ = std::vector<Part>();
}

void CallPlan::make_first(Part& part, const Roster& roster) {
  schedule::Schedule first = part.recipe->make(part.begin, part.slice_bytes);
  first.steps.shrink_to_fit();
  first.once.shrink_to_fit();
  if (first.stages > shm::kMostStages) {
    base::fail(Code::ResourceLimit,
               "{} of {} ranks on {} nodes takes {} stages of a flag, which has {}; use fewer "
               "leaders (ALLRAIL_LEADERS)",
               operation_name(description_.operation), roster.ranks(), roster.nodes(), first.stages,
               shm::kMostStages);
  }
  for (const schedule::Step& step : first.steps) {
    if (step.kind == schedule::StepKind::Put || step.kind == schedule::StepKind::Await) {
      peers_.push_back(step.peer);
    }
    if (step.kind == schedule::StepKind::Await) {
      most_awaited_bytes_ = std::max(most_awaited_bytes_, step.bytes);
    }
  }
  part.first = std::make_shared<schedule::Schedule>(std::move(first));
}

CallPlan::~CallPlan() = default;

/// Where rails carry anything, a slot is free when puts are acknowledged, which may be late. Slices
/// of a call go their way several at once. Where data goes one way only, who sends may be as many
/// calls ahead as there are slots. Who shares a core finds what another wrote in its own caches.
SlotOrder CallPlan::choose_order(const Roster& roster, const PlanLimits& limits) const {
  if (slices_ > 1) return SlotOrder::Ring;
  if (limits.has_rails || roster.nodes() > 1) {
    return description_.root >= 0 ? SlotOrder::Far : SlotOrder::Ring;
  }
  const Operation operation = description_.operation;
  const bool all_await_all = is_barrier(operation) || operation == Operation::Allgather ||
                             operation == Operation::Allgatherv || operation == Operation::Alltoall;
  if (slot_bytes_ <= kMostNearBytes) return all_await_all ? SlotOrder::Near : SlotOrder::Ring;
  const bool is_far = !limits.shares_cores && roster.ranks() <= kMostFarRanks;
  return is_far ? SlotOrder::Far : SlotOrder::Ring;
}

/// Headers and one byte per block are the least that a slot must hold.
void CallPlan::check_slot(std::uint64_t needed_bytes, const Roster& roster,
                          const PlanLimits& limits) const {
  if (needed_bytes <= limits.large_slot_bytes) return;
  base::fail(Code::ResourceLimit,
             "{} of {} ranks on {} nodes by {} needs {} bytes of slot memory at least, a slot has "
             "{}; raise ALLRAIL_NODE_MEMORY, or choose an algorithm of fewer blocks",
             operation_name(description_.operation), roster.ranks(), roster.nodes(),
             algorithm_name(description_.operation, description_.algorithm), needed_bytes,
             limits.large_slot_bytes);
}

void CallPlan::choose_slices(Part& part, const Roster& roster, const PlanLimits& limits) {
  const Recipe& recipe = *part.recipe;
  part.slice_bytes = std::min(part.bytes, recipe.most_slice_bytes());
  check_slot(recipe.slot_bytes(0), roster, limits);
  if (recipe.slot_bytes(part.slice_bytes) > limits.large_slot_bytes) {
    // Slices so small that a second and third one can be under way while the first is read.
    std::uint64_t low = 0;
    std::uint64_t high = part.slice_bytes;
    while (low + 1 < high) {
      const std::uint64_t middle = low + (high - low) / 2;
      (recipe.slot_bytes(middle) <= limits.large_slot_bytes ? low : high) = middle;
    }
    part.slice_bytes = low >= 8192 ? low / 4096 * 4096 : std::max<std::uint64_t>(low, 1);
  }
  if (part.slice_bytes > 0) part.slices = (part.bytes + part.slice_bytes - 1) / part.slice_bytes;
  part.first_slice = slices_;
  slices_ += part.slices;
  slot_bytes_ = std::max(slot_bytes_, recipe.slot_bytes(part.slice_bytes));
  check_slot(slot_bytes_, roster, limits);
}

/// There are few, and calls mostly have one.
const CallPlan::Part& CallPlan::part_of(std::uint64_t slice) const {
  const auto found =
      std::ranges::find_if(parts_, [=](const Part& part) { return part.has(slice); });
  return *found;
}

std::uint64_t CallPlan::slice_begin(std::uint64_t slice) const {
  return slice == 0 ? 0 : part_of(slice).begin_of(slice);
}

bool CallPlan::are_alike(std::uint64_t slice, std::uint64_t other) const {
  if (slice == other) return true;
  const Part& part = part_of(slice);
  return part.has(other) &&
         part.recipe->are_alike(part.begin_of(slice), part.begin_of(other), part.slice_bytes);
}

std::shared_ptr<const schedule::Schedule> CallPlan::schedule(std::uint64_t slice) const {
  if (slice < kept_.size()) return kept_[slice];
  if (slice == 0) return first_;
  const Part& part = part_of(slice);
  if (are_alike(slice, part.first_slice)) return part.first;
  return std::make_shared<schedule::Schedule>(
      part.recipe->make(part.begin_of(slice), part.slice_bytes));
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
