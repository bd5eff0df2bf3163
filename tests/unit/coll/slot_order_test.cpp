// Which slots the calls of a plan take: a rule that all ranks must see alike.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "coll/barrier/barrier.hpp"
#include "coll/plan.hpp"

namespace allrail::coll {
namespace {

SlotOrder order_of(Operation operation, std::uint64_t bytes, const std::vector<int>& nodes,
                   bool shares_cores = false, bool has_rails = false) {
  const Roster roster(schedule::NodeMap(nodes), 0);
  PlanRequest request;
  request.operation = operation;
  request.algorithm =
      operation == Operation::Barrier ? barrier::kAlgorithm : std::string("smp-direct");
  if (operation == Operation::Gather) request.root = 0;
  request.bytes.assign(nodes.size(), bytes);
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    request.receive_offsets.push_back(rank * bytes);
  }
  PlanLimits limits{64 << 10, UINT64_MAX};
  limits.shares_cores = shares_cores;
  limits.has_rails = has_rails;
  return CallPlan(request, roster, limits).slot_order();
}

TEST(SlotOrder, IsNearOrFarWhereAllRanksOfOneNodeAwaitEachOther) {
  const std::vector<int> one = {0, 0};
  EXPECT_EQ(order_of(Operation::Barrier, 0, one), SlotOrder::Near);
  EXPECT_EQ(order_of(Operation::Allgather, 8, one), SlotOrder::Near);
  EXPECT_EQ(order_of(Operation::Allgather, 8192, one), SlotOrder::Near);
  EXPECT_EQ(order_of(Operation::Allgather, 8192, one, true), SlotOrder::Near);
  // With two headers in the region of each rank these fill 20 KiB of a slot.
  EXPECT_EQ(order_of(Operation::Allgather, 10176, one), SlotOrder::Near);
  EXPECT_EQ(order_of(Operation::Allgather, 10177, one), SlotOrder::Far);
  EXPECT_EQ(order_of(Operation::Allgather, 16384, one), SlotOrder::Far);
  EXPECT_EQ(order_of(Operation::Gather, 16384, one), SlotOrder::Far);
  EXPECT_EQ(order_of(Operation::Gather, 8, one), SlotOrder::Ring) << "leaves are ahead of the root";
  EXPECT_EQ(order_of(Operation::Allgather, 16384, one, true), SlotOrder::Ring) << "shared cores";
  EXPECT_EQ(order_of(Operation::Allgather, 1 << 20, one), SlotOrder::Ring) << "slices";
  EXPECT_EQ(order_of(Operation::Allgather, 8192, {0, 0, 0, 0}), SlotOrder::Far);
  EXPECT_EQ(order_of(Operation::Allgather, 8192, {0, 0, 0, 0, 0}), SlotOrder::Ring) << "many ranks";
  EXPECT_EQ(order_of(Operation::Allgather, 8, {0, 0, 0, 0, 0}), SlotOrder::Near);
}

TEST(SlotOrder, IsTheRingWhereRailsCarryAnything) {
  for (const std::uint64_t bytes : {8, 8192, 16384}) {
    EXPECT_EQ(order_of(Operation::Allgather, bytes, {0, 1}), SlotOrder::Ring) << bytes;
    EXPECT_EQ(order_of(Operation::Allgather, bytes, {0, 0}, false, true), SlotOrder::Ring) << bytes;
  }
  EXPECT_EQ(order_of(Operation::Barrier, 0, {0, 1}), SlotOrder::Ring);
}

TEST(SlotOrder, IsFarOverRailsWhereDataGoesOneWay) {
  for (const std::uint64_t bytes : {8, 8192, 16384}) {
    EXPECT_EQ(order_of(Operation::Gather, bytes, {0, 1}), SlotOrder::Far) << bytes;
    EXPECT_EQ(order_of(Operation::Gather, bytes, {0, 0}, false, true), SlotOrder::Far) << bytes;
  }
  EXPECT_EQ(order_of(Operation::Gather, 1 << 20, {0, 1}), SlotOrder::Ring) << "slices";
}

}  // namespace
}  // namespace allrail::coll
