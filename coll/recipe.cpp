#include "coll/recipe.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "coll/allgather/allgather.hpp"
#include "coll/alltoall/alltoall.hpp"
#include "coll/barrier/barrier.hpp"
#include "coll/broadcast/broadcast.hpp"
#include "coll/gather/gather.hpp"
#include "coll/ready_token.hpp"
#include "coll/scatter/scatter.hpp"
#include "coll/with_envelopes.hpp"
#include "coll/with_ready_tokens.hpp"
#include "lib/base/error.hpp"

namespace allrail::coll {
namespace {

template <class Algorithm>
const Algorithm& algorithm_named(const PlanRequest& request,
                                 std::span<const Algorithm> algorithms) {
  std::string names;
  for (const Algorithm& algorithm : algorithms) {
    if (algorithm.name == request.algorithm) return algorithm;
    names += names.empty() ? "" : ", ";
    names += algorithm.name;
  }
  base::fail(Code::InvalidArgument, "there is no {} algorithm '{}'; there are: {}",
             collective_name(request.operation), request.algorithm, names);
}

// Shorter slices of straight calls would be tokens more than blocks.
constexpr std::uint64_t kLeastStraightSliceBytes = 64ULL * 1024;

/// Every block has as much of the slice at `begin` as of the one at `other`.
bool cut_alike(const std::vector<std::uint64_t>& blocks, std::uint64_t begin, std::uint64_t other,
               std::uint64_t bytes) {
  return std::ranges::all_of(blocks, [=](std::uint64_t block) {
    return slice_of(block, begin, bytes) == slice_of(block, other, bytes);
  });
}

/// What gather, scatter and broadcast have in common: a block of every rank, and a root.
template <class Algorithm>
class RootedRecipe : public Recipe {
 public:
  RootedRecipe(const PlanRequest& request, const Roster& roster,
               std::span<const Algorithm> algorithms)
      : roster_(roster),
        algorithm_(algorithm_named(request, algorithms)),
        row_(static_cast<std::uint32_t>(&algorithm_ - algorithms.data())),
        root_(request.root) {
    shape_.bytes = request.bytes;
    shape_.receive_offsets = request.receive_offsets;
    shape_.map = roster.map();
    shape_.ports = request.ports;
    shape_.grouping = roster.grouping(1);
    shape_.switches = roster.switches();
  }
  std::uint32_t algorithm() const override { return row_; }
  bool are_alike(std::uint64_t begin, std::uint64_t other, std::uint64_t bytes) const override {
    return cut_alike(shape_.bytes, begin, other, bytes);
  }

 protected:
  schedule::Shape slice(std::uint64_t begin, std::uint64_t bytes) const {
    schedule::Shape cut = shape_;
    for (std::uint64_t& block : cut.bytes) block = slice_of(block, begin, bytes);
    return cut;
  }

  const Roster& roster_;
  const Algorithm& algorithm_;
  const std::uint32_t row_;
  const int root_;
  schedule::Shape shape_;
};

/// A gather or a scatter.
class GatherRecipe final : public RootedRecipe<schedule::RootedAlgorithm> {
 public:
  GatherRecipe(const PlanRequest& request, const Roster& roster, const PlanLimits& limits,
               schedule::Direction direction)
      : RootedRecipe(request, roster,
                     direction == schedule::Direction::ToRoot ? gather::algorithms()
                                                              : scatter::algorithms()),
        direction_(direction) {
    // Where blocks lie in the root's buffer only the root knows of the others.
    const bool knows_places =
        request.operation == Operation::Gather || request.operation == Operation::Scatter;
    if (knows_places &&
        schedule::rooted_goes_straight(algorithm_, shape_, limits.rooted_threshold_bytes) &&
        straight_slot_bytes(std::min(shape_.bytes.front(), kLeastStraightSliceBytes)) <=
            limits.large_slot_bytes) {
      go_straight(request, limits);
    }
  }
  schedule::Schedule make(std::uint64_t begin, std::uint64_t bytes) const override {
    const schedule::Shape shape = slice(begin, bytes);
    if (!zero_copy()) {
      return schedule::rooted_schedule(algorithm_, shape, root_, roster_.rank(), direction_);
    }
    return with_ready_tokens(
        schedule::rooted_zero_copy_schedule(algorithm_, shape, root_, roster_.rank(), direction_),
        shape.map, roster_.rank(), TokensOf::Ranks, TokensTo::All);
  }
  std::uint64_t slot_bytes(std::uint64_t slice_bytes) const override {
    if (zero_copy()) return straight_slot_bytes(slice_bytes);
    return schedule::rooted_slot_bytes(algorithm_, slice(0, slice_bytes), roster_.largest_node());
  }

 private:
  std::uint64_t straight_slot_bytes(std::uint64_t slice_bytes) const {
    const int largest = roster_.largest_node();
    return token_bytes(roster_.map(), TokensOf::Ranks, largest) +
           schedule::rooted_straight_slot_bytes(largest, slice_bytes);
  }

  const schedule::Direction direction_;
};

class BroadcastRecipe final : public RootedRecipe<broadcast::Algorithm> {
 public:
  BroadcastRecipe(const PlanRequest& request, const Roster& roster, const PlanLimits& limits)
      : RootedRecipe(request, roster, broadcast::algorithms()) {
    shape_.segment_bytes = limits.segment_bytes;
  }
  schedule::Schedule make(std::uint64_t begin, std::uint64_t bytes) const override {
    return broadcast::make_schedule(algorithm_, slice(begin, bytes), root_, roster_.rank());
  }
  std::uint64_t slot_bytes(std::uint64_t slice_bytes) const override {
    const std::uint64_t data = shape_.bytes[static_cast<std::size_t>(root_)];
    return broadcast::slot_bytes(algorithm_, shape_, std::min(data, slice_bytes),
                                 roster_.largest_node());
  }
};

class AlltoallRecipe final : public Recipe {
 public:
  AlltoallRecipe(const PlanRequest& request, const Roster& roster, const PlanLimits& limits)
      : roster_(roster),
        algorithm_(algorithm_named(request, alltoall::algorithms())),
        row_(static_cast<std::uint32_t>(&algorithm_ - alltoall::algorithms().data())),
        in_envelopes_(request.longest_in_envelope.has_value()) {
    shape_.map = roster.map();
    shape_.leaders = request.leaders;
    shape_.grouping = roster.grouping(request.leaders);
    shape_.ports = request.ports;
    shape_.uniform_bytes = request.bytes.front();
    shape_.matrix = request.matrix;
    shape_.send_offsets = request.send_offsets;
    shape_.receive_offsets = request.receive_offsets;
    if (algorithm_.zero_copy && alltoall::goes_straight(shape_, limits.alltoall_threshold_bytes) &&
        straight_slot_bytes(std::min(shape_.uniform_bytes, kLeastStraightSliceBytes)) <=
            limits.large_slot_bytes) {
      go_straight(request, limits);
    }
  }
  std::uint32_t algorithm() const override { return row_; }
  bool are_alike(std::uint64_t begin, std::uint64_t other, std::uint64_t bytes) const override {
    const std::uint64_t block = shape_.uniform_bytes;
    return slice_of(block, begin, bytes) == slice_of(block, other, bytes) &&
           cut_alike(shape_.matrix, begin, other, bytes);
  }
  schedule::Schedule make(std::uint64_t begin, std::uint64_t bytes) const override {
    const schedule::PairShape shape = slice(begin, bytes);
    if (in_envelopes_) {
      return with_envelopes(alltoall::make_schedule(algorithm_, shape, roster_.rank()), shape,
                            roster_.rank());
    }
    if (!zero_copy()) return alltoall::make_schedule(algorithm_, shape, roster_.rank());
    return with_ready_tokens(alltoall::make_zero_copy_schedule(algorithm_, shape, roster_.rank()),
                             shape.map, roster_.rank(), TokensOf::Ranks);
  }
  std::uint64_t slot_bytes(std::uint64_t slice_bytes) const override {
    if (zero_copy()) return straight_slot_bytes(slice_bytes);
    return schedule::pairs_slot_bytes(algorithm_.exchange, slice(0, slice_bytes), algorithm_.level);
  }

 private:
  std::uint64_t straight_slot_bytes(std::uint64_t slice_bytes) const {
    const int largest = roster_.largest_node();
    return token_bytes(roster_.map(), TokensOf::Ranks, largest) +
           schedule::straight_slot_bytes(largest, slice_bytes);
  }
  schedule::PairShape slice(std::uint64_t begin, std::uint64_t bytes) const {
    schedule::PairShape cut = shape_;
    cut.uniform_bytes = slice_of(cut.uniform_bytes, begin, bytes);
    for (std::uint64_t& block : cut.matrix) block = slice_of(block, begin, bytes);
    return cut;
  }

  const Roster& roster_;
  const alltoall::Algorithm& algorithm_;
  const std::uint32_t row_;
  const bool in_envelopes_;
  schedule::PairShape shape_;
};

class BarrierRecipe final : public Recipe {
 public:
  BarrierRecipe(const PlanRequest& request, const Roster& roster)
      : roster_(roster), ports_(request.ports) {}
  std::uint32_t algorithm() const override { return 0; }
  bool are_alike(std::uint64_t /*begin*/, std::uint64_t /*other*/,
                 std::uint64_t /*bytes*/) const override {
    return true;
  }
  schedule::Schedule make(std::uint64_t /*begin*/, std::uint64_t /*bytes*/) const override {
    const schedule::Groups groups{roster_.map(), 1, roster_.grouping(1)};
    return barrier::make_schedule(groups, ports_, roster_.rank());
  }
  std::uint64_t slot_bytes(std::uint64_t /*slice_bytes*/) const override {
    return barrier::slot_bytes(roster_.nodes(), ports_);
  }

 private:
  const Roster& roster_;
  const int ports_;
};

/// What `use` makes of the algorithms of the collective.
template <class Use>
auto with_table_of(Operation operation, const Use& use) {
  const std::string_view collective = collective_name(operation);
  if (collective == "gather") return use(gather::algorithms());
  if (collective == "scatter") return use(scatter::algorithms());
  if (collective == "broadcast") return use(broadcast::algorithms());
  if (collective == "alltoall") return use(alltoall::algorithms());
  return use(allgather::algorithms());
}

}  // namespace

std::uint64_t Recipe::most_slice_bytes() const {
  return zero_copy_ ? kLargestPutBytes : UINT64_MAX;
}

void Recipe::go_straight(const PlanRequest& request, const PlanLimits& limits) {
  copies_because_of_limit_ = registered_bytes(request) > limits.registered_bytes;
  zero_copy_ = !copies_because_of_limit_;
}

std::unique_ptr<const Recipe> make_recipe(const PlanRequest& request, const Roster& roster,
                                          const PlanLimits& limits) {
  switch (request.operation) {
    case Operation::Gather:
    case Operation::Gatherv:
      return std::make_unique<GatherRecipe>(request, roster, limits, schedule::Direction::ToRoot);
    case Operation::Scatter:
    case Operation::Scatterv:
      return std::make_unique<GatherRecipe>(request, roster, limits, schedule::Direction::FromRoot);
    case Operation::Broadcast:
      return std::make_unique<BroadcastRecipe>(request, roster, limits);
    case Operation::Alltoall:
    case Operation::Alltoallv:
      return std::make_unique<AlltoallRecipe>(request, roster, limits);
    case Operation::Barrier:
    case Operation::PlannedBarrier:
      return std::make_unique<BarrierRecipe>(request, roster);
    case Operation::Allgather:
    case Operation::Allgatherv:
    case Operation::Allocate:
    case Operation::Split:
    case Operation::Counts:
    case Operation::StartUp:
      break;
  }
  return make_allgather_recipe(request, algorithm_named(request, allgather::algorithms()), roster,
                               limits);
}

std::vector<CallPart> make_parts(const PlanRequest& request, const Roster& roster,
                                 const PlanLimits& limits) {
  std::vector<CallPart> parts;
  if (request.operation == Operation::Allgatherv && request.algorithm == allgather::kRingChain) {
    parts = make_ring_chain_parts(request, roster, limits);
  }
  if (!parts.empty()) return parts;
  CallPart whole;
  whole.recipe = make_recipe(request, roster, limits);
  whole.bytes = *std::ranges::max_element(request.bytes);
  parts.push_back(std::move(whole));
  return parts;
}

Operation operation_of(std::string_view collective) noexcept {
  for (const Operation operation : kCollectives) {
    if (collective == collective_name(operation)) return operation;
  }
  return Operation::Allgather;
}

std::string_view algorithm_name(Operation operation, std::uint32_t row) noexcept {
  if (is_barrier(operation)) {
    return row == 0 ? barrier::kAlgorithm : "an unknown algorithm";
  }
  return with_table_of(operation, [row](const auto& table) -> std::string_view {
    return row < table.size() ? table[row].name : "an unknown algorithm";
  });
}

std::vector<std::string_view> algorithm_names(Operation operation) {
  return with_table_of(operation, [](const auto& table) {
    std::vector<std::string_view> names;
    for (const auto& algorithm : table) names.push_back(algorithm.name);
    return names;
  });
}

const char* collective_name(Operation operation) noexcept {
  switch (operation) {
    case Operation::Gather:
    case Operation::Gatherv:
      return "gather";
    case Operation::Scatter:
    case Operation::Scatterv:
      return "scatter";
    case Operation::Broadcast:
      return "broadcast";
    case Operation::Alltoall:
    case Operation::Alltoallv:
      return "alltoall";
    case Operation::Barrier:
    case Operation::PlannedBarrier:
      return "barrier";
    case Operation::Allgather:
    case Operation::Allgatherv:
    case Operation::Allocate:
    case Operation::Split:
    case Operation::Counts:
    case Operation::StartUp:
      break;
  }
  return "allgather";
}

bool has_lanes(Operation operation) noexcept {
  const std::string_view collective = collective_name(operation);
  return collective == "allgather" || collective == "alltoall";
}

}  // namespace allrail::coll
