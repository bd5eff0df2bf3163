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

CallPlan::CallPlan(const PlanRequest& request, const Roster& roster, const PlanLimits& limits)
    : recipe_(make_recipe(request, roster, limits)),
      registered_bytes_(coll::registered_bytes(request)),
      zero_copy_(recipe_->zero_copy()),
      copies_because_of_limit_(recipe_->copies_because_of_limit()) {
  description_.bytes = *std::ranges::max_element(request.bytes);
  description_.operation = request.operation;
  description_.algorithm = recipe_->algorithm();
  description_.memory = request.memory;
  description_.root = request.root;
  hash_ = mix(static_cast<std::uint64_t>(request.operation), description_.algorithm);
  // At every size, also where the kind changes nothing: that a call is right may not depend on it.
  hash_ = mix(hash_, static_cast<std::uint64_t>(request.memory));
  for (const std::uint64_t bytes : request.bytes) hash_ = mix(hash_, bytes);
  hash_ = mix(hash_, recipe_->way());
  // Decides about the way of large calls; only the root of other collectives has displacements.
  if (request.operation == Operation::Allgatherv) hash_ = mix(hash_, request.displaced ? 1 : 0);
  for (const std::uint64_t bytes : request.matrix) hash_ = mix(hash_, bytes);
  // What lies in envelopes begins with words that are not the user's.
  if (request.longest_in_envelope) hash_ = mix(hash_, *request.longest_in_envelope);
  hash_ = mix(hash_, static_cast<std::uint64_t>(request.root));
  hash_ = mix(hash_, static_cast<std::uint64_t>(request.ports) << 32 |
                         static_cast<std::uint64_t>(request.leaders));
  choose_slices(roster, limits);
  schedule::Schedule first = make_schedule(0);
  first.steps.shrink_to_fit();
  first.once.shrink_to_fit();
  if (first.stages > shm::kMostStages) {
    base::fail(Code::ResourceLimit,
               "{} of {} ranks on {} nodes takes {} stages of a flag, which has {}; use fewer "
               "leaders (ALLRAIL_LEADERS)",
               operation_name(description_.operation), roster.ranks(), roster.nodes(), first.stages,
               shm::kMostStages);
  }
  first_ = std::make_shared<schedule::Schedule>(std::move(first));
  std::vector<int> put_to;
  for (const schedule::Step& step : first_->steps) {
    if (step.kind == schedule::StepKind::Put) put_to.push_back(step.peer);
    if (step.kind == schedule::StepKind::Put || step.kind == schedule::StepKind::Await) {
      peers_.push_back(step.peer);
    }
    if (step.kind == schedule::StepKind::Await) {
      most_awaited_bytes_ = std::max(most_awaited_bytes_, step.bytes);
    }
  }
  std::ranges::sort(peers_);
  peers_.erase(std::unique(peers_.begin(), peers_.end()), peers_.end());
  peers_.shrink_to_fit();
  std::ranges::sort(put_to);
  may_coalesce_ = description_.root >= 0 && slices_ == 1 && !zero_copy_ &&
                  std::ranges::adjacent_find(put_to) == put_to.end();
  // Every rank of a barrier between nodes takes part in what it spreads (coll/engine_pace.cpp).
  const bool spreads = request.operation == Operation::Barrier && roster.nodes() > 1;
  is_on_node_ = slices_ == 1 && !zero_copy_ && !spreads && coll::is_on_node(*first_);
  slot_order_ = choose_order(roster, limits);
  if (slices_ == 1) recipe_.reset();
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

void CallPlan::choose_slices(const Roster& roster, const PlanLimits& limits) {
  const std::uint64_t block = description_.bytes;
  slice_bytes_ = std::min(block, recipe_->most_slice_bytes());
  check_slot(recipe_->slot_bytes(0), roster, limits);
  if (recipe_->slot_bytes(slice_bytes_) > limits.large_slot_bytes) {
    // Slices so small that a second and third one can be under way while the first is read.
    std::uint64_t low = 0;
    std::uint64_t high = slice_bytes_;
    while (low + 1 < high) {
      const std::uint64_t middle = low + (high - low) / 2;
      (recipe_->slot_bytes(middle) <= limits.large_slot_bytes ? low : high) = middle;
    }
    slice_bytes_ = low >= 8192 ? low / 4096 * 4096 : std::max<std::uint64_t>(low, 1);
  }
  slices_ = slice_bytes_ == 0 ? 1 : (block + slice_bytes_ - 1) / slice_bytes_;
  slot_bytes_ = recipe_->slot_bytes(slice_bytes_);
  check_slot(slot_bytes_, roster, limits);
}

schedule::Schedule CallPlan::make_schedule(std::uint64_t slice) const {
  return recipe_->make(slice * slice_bytes_, slice_bytes_);
}

bool CallPlan::are_alike(std::uint64_t slice, std::uint64_t other) const {
  return slice == other ||
         recipe_->are_alike(slice * slice_bytes_, other * slice_bytes_, slice_bytes_);
}

std::shared_ptr<const schedule::Schedule> CallPlan::schedule(std::uint64_t slice) const {
  if (slice < kept_.size()) return kept_[slice];
  if (are_alike(slice, 0)) return first_;
  return std::make_shared<schedule::Schedule>(make_schedule(slice));
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
