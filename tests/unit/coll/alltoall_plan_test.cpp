// Which way an alltoall goes.
#include <gtest/gtest.h>

#include "coll/plan.hpp"
#include "coll/ready_token.hpp"

namespace allrail::coll {
namespace {

constexpr std::uint64_t kThreshold = 1000;

CallPlan make(const std::vector<int>& node_of, std::uint64_t bytes, const char* algorithm,
              std::uint64_t may_register = UINT64_MAX, bool has_matrix = false) {
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
  PlanLimits limits{1 << 20, kThreshold};
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
    EXPECT_FALSE(make({0, 1, 1}, kThreshold, algorithm).zero_copy());
    EXPECT_FALSE(make({0}, kThreshold, algorithm).zero_copy());
  }
  EXPECT_FALSE(make({0, 1, 2}, kThreshold, "smp-bruck").zero_copy());
  EXPECT_FALSE(make({0, 1, 2}, kThreshold, "direct", UINT64_MAX, true).zero_copy())
      << "nobody knows where the others have their blocks";
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
