// Which way a call into a NodeBuffer goes.
#include <algorithm>

#include <gtest/gtest.h>

#include "coll/plan.hpp"
#include "coll/ready_token.hpp"

namespace allrail::coll {
namespace {

using schedule::Memory;
using schedule::Step;
using schedule::StepKind;

constexpr std::uint64_t kThreshold = 1000;
constexpr std::uint64_t kLargestOnce = 300;

struct Wanted {
  std::vector<int> node_of;
  std::uint64_t bytes;
  std::string algorithm = "smp-ring";
  MemoryKind memory = MemoryKind::NodeBuffer;
  bool displaced = false;
  std::uint64_t once_bytes = kLargestOnce;
};

class NodeSharedPlan : public testing::Test {
 protected:
  CallPlan make(const Wanted& wanted, int rank = 0) {
    roster_ = Roster(schedule::NodeMap(wanted.node_of), rank);
    PlanRequest request;
    request.algorithm = wanted.algorithm;
    request.memory = wanted.memory;
    request.displaced = wanted.displaced;
    request.leaders = 2;
    for (std::size_t i = 0; i < wanted.node_of.size(); ++i) {
      request.bytes.push_back(wanted.bytes);
      request.receive_offsets.push_back(i * wanted.bytes);
    }
    PlanLimits limits{1 << 20, UINT64_MAX};
    limits.node_buffer_threshold_bytes = kThreshold;
    limits.once_bytes = wanted.once_bytes;
    return CallPlan(request, roster_, limits);
  }
  /// Straight: nothing but ready tokens goes through the slot.
  static bool is_straight(const CallPlan& plan) {
    const auto& steps = plan.first().steps;
    return std::ranges::none_of(steps, [](const Step& step) {
      return step.kind == StepKind::Copy && step.to == Memory::Slot;
    });
  }

  Roster roster_;
};

TEST_F(NodeSharedPlan, IsStraightFromAThresholdOfWhatANodeSends) {
  EXPECT_TRUE(is_straight(make({{0, 0, 1, 1}, 500})));
  EXPECT_FALSE(is_straight(make({{0, 0, 1, 1}, 499})));
  EXPECT_FALSE(is_straight(make({{0, 1}, 999})));
  EXPECT_TRUE(make({{0, 1}, 1000}).zero_copy());
}

TEST_F(NodeSharedPlan, OneNodeNeedsTheSlotOnlyWhereOneRankCopiesForAll) {
  const auto is_once = [](const CallPlan& plan) { return !plan.first().once.empty(); };
  for (const bool displaced : {false, true}) {
    const auto plan_of = [&](std::uint64_t bytes) {
      return make({{0, 0, 0}, bytes, "smp-bruck", MemoryKind::CopiedNodeBuffer, displaced}, 1);
    };
    const CallPlan large = plan_of(kLargestOnce + 1);
    EXPECT_FALSE(is_once(large));
    EXPECT_TRUE(is_straight(large));
    EXPECT_FALSE(large.zero_copy());
    EXPECT_EQ(large.slot_bytes(), 0U);
    const CallPlan small = plan_of(kLargestOnce);
    EXPECT_TRUE(is_once(small));
    EXPECT_FALSE(is_straight(small));
    EXPECT_EQ(small.slot_bytes(), 3 * kLargestOnce);
    const CallPlan in_lines = plan_of(schedule::kLineBytes);
    EXPECT_TRUE(is_once(in_lines));
    EXPECT_EQ(in_lines.slot_bytes(), 0U);
    EXPECT_NE(small.hash(), large.hash());
  }
  EXPECT_FALSE(is_once(make({{0}, 8})));
  EXPECT_FALSE(is_once(make({{0, 0, 1}, 8})));
  for (const std::uint64_t bytes : {0, 8}) {
    EXPECT_FALSE(is_once(make({{0, 0}, bytes, "smp-ring", MemoryKind::NodeBuffer, false, 0})));
  }
}

TEST_F(NodeSharedPlan, IsCopiedWhereItCannotBeStraight) {
  EXPECT_FALSE(is_straight(make({{0, 0, 1}, 5000, "smp-bruck"})));
  EXPECT_FALSE(is_straight(make({{0, 0, 1}, 5000, "smp-ring", MemoryKind::CopiedNodeBuffer})));
  EXPECT_FALSE(is_straight(make({{0, 0, 1}, 5000, "smp-ring", MemoryKind::NodeBuffer, true})));
}

TEST_F(NodeSharedPlan, IsCopiedWhereTransfersWouldBeManyPuts) {
  std::vector<int> few, many;
  for (int rank = 0; rank < 128; ++rank) few.push_back(rank % 2);
  for (int rank = 0; rank < 130; ++rank) many.push_back(rank % 2);
  EXPECT_TRUE(is_straight(make({few, 5000})));
  EXPECT_FALSE(is_straight(make({many, 5000})));
}

TEST_F(NodeSharedPlan, ResultsLargerThanASlotAreOneSlice) {
  const std::uint64_t block = std::uint64_t{3} << 29;  // 1.5 GiB
  const CallPlan plan = make({{0, 0, 1}, block});
  EXPECT_EQ(plan.slices(), 1U);
  EXPECT_EQ(plan.registered_bytes(), 0U);
  std::uint64_t put = 0;
  for (const Step& step : plan.first().steps) {
    if (step.kind != StepKind::Put || step.to == Memory::Slot) continue;
    EXPECT_LE(step.bytes, std::uint64_t{512} << 20);
    put += step.bytes;
  }
  EXPECT_EQ(put, 2 * block);
}

TEST_F(NodeSharedPlan, OnlyLeadersSayThatTheyAreReady) {
  const Wanted wanted{{0, 0, 1, 1, 2}, 5000};
  for (int rank = 0; rank < 5; ++rank) {
    const CallPlan plan = make(wanted, rank);
    const auto& steps = plan.first().steps;
    const bool leads = rank != 1 && rank != 3;
    const auto stamp = std::ranges::find(steps, StepKind::Stamp, &Step::kind);
    ASSERT_EQ(stamp != steps.end(), leads) << rank;
    EXPECT_EQ(plan.peers().empty(), !leads);
    EXPECT_EQ(plan.slot_bytes(), 4 * kTokenBytes);
    EXPECT_EQ(plan.hash(), make(wanted).hash());
    if (!leads) continue;
    // Behind the flags of its node, and before its tokens.
    const auto token = std::ranges::find_if(steps, [](const Step& step) {
      return step.kind == StepKind::Put && step.to == Memory::Slot;
    });
    EXPECT_LT(stamp - steps.begin(), token - steps.begin());
    EXPECT_EQ(std::any_of(steps.begin(), stamp,
                          [](const Step& step) { return step.kind == StepKind::AwaitLocal; }),
              rank != 4);
  }
}

}  // namespace
}  // namespace allrail::coll
