// An allgather by a ring and chains, see coll/allgather/allgather_ring_chain.cpp.
#include <algorithm>
#include <memory>
#include <utility>

#include "coll/allgather/allgather.hpp"
#include "coll/broadcast/broadcast.hpp"
#include "coll/recipe.hpp"
#include "coll/schedule/step_list.hpp"

namespace allrail::coll {
namespace {

/// What the block of one rank has above the level, to its place in the results of all.
class BlockChainRecipe final : public Recipe {
 public:
  /// `shape` is that of a broadcast of nothing, the same for all chains of a call.
  BlockChainRecipe(const PlanRequest& request, int owner, const Roster& roster,
                   std::shared_ptr<const schedule::Shape> shape)
      : roster_(roster),
        owner_(owner),
        block_bytes_(request.bytes[static_cast<std::size_t>(owner)]),
        place_(request.receive_offsets[static_cast<std::size_t>(owner)]),
        shape_(std::move(shape)) {}

  std::uint32_t algorithm() const override {
    return static_cast<std::uint32_t>(allgather::find_algorithm(allgather::kRingChain) -
                                      allgather::algorithms().data());
  }
  bool are_alike(std::uint64_t begin, std::uint64_t other, std::uint64_t bytes) const override {
    return slice_of(block_bytes_, begin, bytes) == slice_of(block_bytes_, other, bytes);
  }
  schedule::Schedule make(std::uint64_t begin, std::uint64_t bytes) const override {
    schedule::Shape shape = *shape_;
    std::ranges::fill(shape.bytes, slice_of(block_bytes_, begin, bytes));
    schedule::Schedule schedule = broadcast::make_schedule(chain(), shape, owner_, roster_.rank());
    for (schedule::Step& step : schedule.steps) {
      if (step.kind == schedule::StepKind::Copy && step.to == schedule::Memory::Receive) {
        step.to_offset += place_;
      }
    }
    // A broadcast leaves its root's result alone. All puts are posted before.
    if (roster_.rank() == owner_) {
      schedule::StepList steps(schedule);
      steps.enter_round(std::max(schedule.rounds - 1, 0));
      steps.copy(schedule::Memory::Send, 0, schedule::Memory::Receive, place_, shape.bytes.front());
    }
    return schedule;
  }
  std::uint64_t slot_bytes(std::uint64_t slice_bytes) const override {
    return broadcast::slot_bytes(chain(), *shape_, std::min(slice_bytes, block_bytes_),
                                 roster_.largest_node());
  }

 private:
  static const broadcast::Algorithm& chain() { return *broadcast::find_algorithm("smp-chain"); }

  const Roster& roster_;
  const int owner_;
  const std::uint64_t block_bytes_;
  const std::uint64_t place_;  // of the block in the result
  const std::shared_ptr<const schedule::Shape> shape_;
};

std::shared_ptr<const schedule::Shape> shape_of_chains(const Roster& roster,
                                                       const PlanLimits& limits) {
  auto shape = std::make_shared<schedule::Shape>();
  shape->map = roster.map();
  shape->grouping = roster.grouping(1);
  shape->bytes.assign(static_cast<std::size_t>(roster.ranks()), 0);
  shape->receive_offsets = shape->bytes;
  shape->segment_bytes = limits.segment_bytes;
  return shape;
}

}  // namespace

std::vector<CallPart> make_ring_chain_parts(const PlanRequest& request, const Roster& roster,
                                            const PlanLimits& limits) {
  std::vector<CallPart> parts;
  const std::uint64_t level =
      allgather::cut_for_ring_chain(roster.map(), request.bytes).level_bytes;
  if (level == *std::ranges::max_element(request.bytes) || is_node_shared(request.memory)) {
    return parts;
  }
  if (level > 0) {
    PlanRequest below = request;
    for (std::uint64_t& block : below.bytes) block = std::min(block, level);
    below.displaced = true;  // what is cut does not lie one behind the other
    parts.push_back({make_recipe(below, roster, limits), 0, level});
  }
  const auto shape = shape_of_chains(roster, limits);
  for (int rank = 0; rank < roster.ranks(); ++rank) {
    const std::uint64_t block = request.bytes[static_cast<std::size_t>(rank)];
    if (block <= level) continue;
    parts.push_back(
        {std::make_unique<BlockChainRecipe>(request, rank, roster, shape), level, block - level});
  }
  return parts;
}

}  // namespace allrail::coll
