// Which way an alltoall goes.
#include <gtest/gtest.h>

#include "coll/plan.hpp"
#include "coll/ready_token.hpp"
#include "include/allrail/error.hpp"

namespace allrail::coll {
namespace {

constexpr std::uint64_t kThreshold = 1000;

CallPlan make(const std::vector<int>& node_of, std::uint64_t bytes, const char* algorithm,
              std::uint64_t may_register = UINT64_MAX, bool has_matrix = false,
              std::uint64_t slot_bytes = 1 << 23) {
  // A plan outlives no roster.
  static std::vector<std::unique_ptr<Roster>> rosters;
  rosters.push_back(std::make_unique<Roster>(schedule::NodeMap(node_of), 0));
  PlanRequest request;
  request.operation = has_matrix ? Operation::Alltoallv : Operation::Alltoall;
  request.algorithm = algorithm;
  const std::size_t ranks = node_of.size();
  request.bytes.assign(ranks, bytes);
  for (std::size_t i = 0; i < ranks; ++i) request.receive_offsets.push_back(i * bytes);
  request.send_offsets = request.receive_offsets;
  if (has_matrix) request.matrix.assign(ranks * ranks, bytes);
  PlanLimits limits{.large_slot_bytes = slot_bytes, .alltoall_threshold_bytes = kThreshold};
  limits.registered_bytes = may_register;
  return {request, *rosters.back(), limits};
}

TEST(AlltoallPlan, IsStraightWhereBlocksAreLargeAndNobodySendsThemOn) {
  for (const char* algorithm : {"direct", "smp-direct"}) {
    const CallPlan plan = make({0, 1, 2}, kThreshold, algorithm);
    EXPECT_TRUE(plan.zero_copy());
    EXPECT_EQ(plan.slot_bytes(), 4 * kTokenBytes) << "tokens alone";
    EXPECT_EQ(plan.registered_bytes(), 6 * kThreshold);
    EXPECT_FALSE(make({0, 1, 2}, kThreshold - 1, algorithm).zero_copy());
    EXPECT_FALSE(make({0}, kThreshold, algorithm).zero_copy());
  }
  EXPECT_FALSE(make({0, 1, 2}, kThreshold, "smp-bruck").zero_copy());
  EXPECT_FALSE(make({0, 1, 2}, kThreshold, "direct", UINT64_MAX, true).zero_copy())
      << "nobody knows where the others have their blocks";
}

TEST(AlltoallPlan, IsStraightFromHalfAsMuchOnWhereNodesHaveSeveralRanks) {
  for (const char* algorithm : {"direct", "smp-direct"}) {
    const CallPlan plan = make({0, 1, 1}, kThreshold / 2, algorithm);
    EXPECT_TRUE(plan.zero_copy());
    EXPECT_EQ(plan.slot_bytes(), 2 * 4 * kTokenBytes + 2 * 512)
        << "a table for each rank of the larger node, and what these have for each other";
    EXPECT_FALSE(make({0, 1, 1}, kThreshold / 2 - 1, algorithm).zero_copy());
    EXPECT_EQ(plan.peers(), (std::vector<int>{1, 2}));
  }
}

TEST(AlltoallPlan, IsNotStraightWhereEveryRankOfANodeHadManyLinks) {
  std::vector<int> node_of(66, 1);
  node_of[0] = node_of[1] = 0;
  EXPECT_TRUE(make(node_of, kThreshold, "smp-direct").zero_copy());
  node_of.push_back(1);
  EXPECT_FALSE(make(node_of, kThreshold, "smp-direct").zero_copy());
}

TEST(AlltoallPlan, IsCopiedWhereWhatNodesKeepWouldBeCutIntoCrumbs) {
  const std::uint64_t least = 2 * 4 * kTokenBytes + 2 * (64 << 10);
  for (const std::uint64_t slot_bytes : {least, least - 1}) {
    const CallPlan plan = make({0, 1, 1}, 1 << 20, "direct", UINT64_MAX, false, slot_bytes);
    EXPECT_EQ(plan.zero_copy(), slot_bytes == least);
    EXPECT_GT(plan.slices(), 1U);
  }
}

TEST(AlltoallPlan, NeedsASlotForHeadersAndOneByteOfEachBlock) {
  constexpr std::uint64_t kNeeded = 3 * 5 * 128;  // half of it for the headers
  EXPECT_EQ(make({0, 0, 0}, 8, "direct", UINT64_MAX, false, kNeeded).slot_bytes(), kNeeded);
  for (const std::uint64_t slot_bytes : {kNeeded - 1, kNeeded / 2 + 40, kNeeded / 2 - 1}) {
    EXPECT_THROW(make({0, 0, 0}, 8, "direct", UINT64_MAX, false, slot_bytes), Error) << slot_bytes;
  }
}

TEST(AlltoallPlan, IsCopiedWhereSoMuchMayNotBeRegistered) {
  EXPECT_TRUE(make({0, 1, 2}, kThreshold, "direct", 6 * kThreshold).zero_copy());
  const CallPlan copied = make({0, 1, 2}, kThreshold, "direct", 6 * kThreshold - 1);
  EXPECT_FALSE(copied.zero_copy());
  EXPECT_TRUE(copied.copies_because_of_limit());
  EXPECT_NE(copied.hash(), make({0, 1, 2}, kThreshold, "direct").hash())
      << "ranks that differ in this must not take it for the same call";
}

}  // namespace
}  // namespace allrail::coll
