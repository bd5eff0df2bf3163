// Results of many slices: which of them have a schedule in common.
#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "coll/plan.hpp"
#include "coll/recipe.hpp"

namespace allrail::coll {
namespace {

constexpr std::uint64_t kBlock = 1 << 20;

/// Ranks 1 and 3 have less than the others, which every rank knows.
PlanRequest uneven(Operation operation, const char* algorithm) {
  PlanRequest request;
  request.operation = operation;
  request.algorithm = algorithm;
  request.bytes = {kBlock, kBlock / 3, kBlock, 0};
  if (operation == Operation::Gatherv || operation == Operation::Scatterv) request.root = 1;
  for (std::uint64_t i = 0; i < 4; ++i) request.receive_offsets.push_back(i * kBlock);
  if (operation != Operation::Alltoallv) return request;
  request.bytes.assign(4, kBlock);
  request.send_offsets = request.receive_offsets;
  request.matrix.assign(16, kBlock);
  request.matrix[1] = request.matrix[6] = kBlock / 3;
  request.matrix[11] = 0;
  return request;
}

struct Case {
  Operation operation;
  const char* algorithm;
};

class Slices : public testing::TestWithParam<Case> {};

// A plan keeps the schedules of all its slices: of blocks of GiB there are many thousands.
TEST_P(Slices, ShareTheirSchedulesWhereCountsDiffer) {
  const PlanRequest request = uneven(GetParam().operation, GetParam().algorithm);
  const PlanLimits limits{.large_slot_bytes = 64 << 10, .zero_copy_threshold_bytes = UINT64_MAX};
  for (int rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(rank);
    const Roster roster(schedule::NodeMap({0, 0, 1, 1}), rank);
    CallPlan plan(request, roster, limits);
    ASSERT_GT(plan.slices(), 50U);
    plan.keep_all_slices();
    const auto recipe = make_recipe(request, roster, limits);
    std::set<std::shared_ptr<const schedule::Schedule>> kept;
    for (std::uint64_t i = 0; i < plan.slices(); ++i) {
      kept.insert(plan.schedule(i));
      const auto wanted = recipe->make(plan.slice_begin(i), plan.slice_begin(1));
      ASSERT_EQ(plan.schedule(i)->steps, wanted.steps) << "slice " << i;
      ASSERT_EQ(plan.schedule(i)->slot_bytes, wanted.slot_bytes) << "slice " << i;
    }
    EXPECT_LE(kept.size(), 4U) << "all, the end of the shorter blocks, the others, the end";
  }
}

// 700 nodes have tokens for more than a slot of little node memory has.
TEST(Tokens, ThatDoNotFitIntoASlotLeaveBlocksToSlots) {
  std::vector<int> node_of(700);
  std::iota(node_of.begin(), node_of.end(), 0);
  const Roster roster(schedule::NodeMap(node_of), 0);
  PlanRequest request;
  request.algorithm = "ring";
  request.bytes.assign(node_of.size(), kBlock);
  for (std::uint64_t i = 0; i < node_of.size(); ++i) request.receive_offsets.push_back(i * kBlock);
  for (const std::uint64_t slot_bytes : {152 << 10, 256 << 10}) {
    const CallPlan plan(request, roster,
                        PlanLimits{.large_slot_bytes = slot_bytes, .zero_copy_threshold_bytes = 1});
    EXPECT_EQ(plan.zero_copy(), slot_bytes == 256 << 10);
    EXPECT_EQ(plan.slices() > 1, !plan.zero_copy());
  }
}

INSTANTIATE_TEST_SUITE_P(Collectives, Slices,
                         testing::Values(Case{Operation::Allgatherv, "smp-ring"},
                                         Case{Operation::Gatherv, "smp-binomial"},
                                         Case{Operation::Scatterv, "smp-binomial"},
                                         Case{Operation::Alltoallv, "direct"},
                                         Case{Operation::Alltoallv, "smp-direct"}),
                         [](const testing::TestParamInfo<Case>& one) {
                           std::string name = std::to_string(one.index) + "_" + one.param.algorithm;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace allrail::coll
