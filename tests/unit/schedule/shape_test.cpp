#include "coll/schedule/shape.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace allrail::schedule {
namespace {

TEST(NodeMap, KeepsRankOrderOnIrregularNodes) {
  const NodeMap map({1, 0, 1, 2, 1});
  EXPECT_EQ(map.ranks(), 5);
  EXPECT_EQ(map.nodes(), 3);
  EXPECT_EQ(map.ranks_of[1], (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(map.local_rank_of, (std::vector<int>{0, 0, 1, 0, 2}));
  EXPECT_EQ(map.smallest_node, 1);
}

TEST(NodeMap, RefusesGapsNegativeNodesAndNoRanks) {
  EXPECT_THROW(NodeMap({0, 2}), std::invalid_argument);
  EXPECT_THROW(NodeMap({0, 0, 2}), std::invalid_argument);
  EXPECT_THROW(NodeMap({0, -1}), std::invalid_argument);
  EXPECT_THROW(NodeMap({2000000000}), std::invalid_argument);
  EXPECT_THROW(NodeMap(std::vector<int>{}), std::invalid_argument);
}

TEST(Shape, HasAsManyLanesOnSmallNodesAsOnLargeOnes) {
  EXPECT_EQ(uniform_shape(NodeMap({0, 0, 0, 1, 1}), 8, 1, 4).lanes(), 3) << "the largest node's";
  EXPECT_EQ(uniform_shape(NodeMap({0, 0, 0, 1, 1}), 8, 1, 1).lanes(), 1);
  EXPECT_EQ(uniform_shape(NodeMap({0, 0, 0}), 8, 1, 3).lanes(), 1) << "nobody to talk to";
}

/// Two nodes: this many ranks on node 0, `size` on node 1.
Shape two_nodes(int other_size, int size, int leaders) {
  std::vector<int> node_of(static_cast<std::size_t>(other_size), 0);
  node_of.resize(static_cast<std::size_t>(other_size + size), 1);
  return uniform_shape(NodeMap(node_of), 8, 1, leaders);
}

TEST(Shape, GroupsPartitionEveryNode) {
  for (int size = 1; size <= 24; ++size) {
    for (int leaders = 1; leaders <= 24; ++leaders) {
      const Shape shape = two_nodes(24, size, leaders);
      ASSERT_EQ(shape.lanes(), leaders);
      const GroupTable groups(shape);
      int next = 24;
      for (int lane = 0; lane < leaders; ++lane) {
        const auto ranks = groups.ranks(1, lane);
        EXPECT_GE(static_cast<int>(ranks.size()), size / leaders);
        EXPECT_LE(static_cast<int>(ranks.size()), (size + leaders - 1) / leaders);
        for (const int rank : ranks) {
          EXPECT_EQ(rank, next++);
          EXPECT_EQ(shape.lane_of(rank), lane) << size << " " << leaders << " " << rank;
        }
        const int leader = shape.leader(1, lane);
        ASSERT_GE(leader, 0);
        ASSERT_LT(leader, size);
        EXPECT_TRUE(ranks.empty() || ranks.front() == 24 + leader);
      }
      EXPECT_EQ(next, 24 + size);
    }
  }
}

TEST(Shape, GroupsAsItIsTold) {
  Shape shape = two_nodes(3, 1, 2);
  auto grouping = std::make_shared<Grouping>();
  grouping->lanes = 2;
  grouping->lane_of = {1, 0, 1, 1};
  grouping->leaders = {1, 2, 0, 0};
  shape.grouping = grouping;
  EXPECT_NO_THROW(check_shape(shape, 0));
  const GroupTable groups(shape);
  EXPECT_TRUE(std::ranges::equal(groups.ranks(0, 0), std::vector<int>{1}));
  EXPECT_TRUE(std::ranges::equal(groups.ranks(0, 1), std::vector<int>{0, 2}));
  EXPECT_TRUE(groups.ranks(1, 0).empty());
  EXPECT_TRUE(std::ranges::equal(groups.ranks(1, 1), std::vector<int>{3}));
  EXPECT_EQ(shape.leader(0, 1), 2);
  EXPECT_EQ(shape.leader(1, 1), 0) << "it leads both";
}

TEST(Shape, RefusesAGroupingThatDoesNotFit) {
  const auto refused = [](auto change) {
    Shape shape = two_nodes(3, 1, 2);
    Grouping grouping{2, {1, 0, 1, 1}, {1, 2, 0, 0}};
    change(grouping);
    shape.grouping = std::make_shared<Grouping>(grouping);
    try {
      check_shape(shape, 0);
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  EXPECT_FALSE(refused([](Grouping&) {}));
  EXPECT_TRUE(refused([](Grouping& grouping) { grouping.lane_of.pop_back(); }));
  EXPECT_TRUE(refused([](Grouping& grouping) { grouping.lane_of[0] = 2; }));
  EXPECT_TRUE(refused([](Grouping& grouping) { grouping.leaders.pop_back(); }));
  EXPECT_TRUE(refused([](Grouping& grouping) { grouping.leaders[2] = 1; }));
  EXPECT_TRUE(refused([](Grouping& grouping) { grouping.leaders[0] = -1; }));
  EXPECT_TRUE(refused([](Grouping& grouping) { grouping.lanes = 0; }));
  EXPECT_TRUE(refused([](Grouping& grouping) {
    grouping.lanes = kMostLanes + 1;
    grouping.leaders.assign(2 * (kMostLanes + 1), 0);
  }));
}

TEST(Shape, PacksBlocksInRankOrder) {
  const Shape shape = packed_shape(NodeMap({0, 0, 0}), {3, 0, 5}, 1, 1);
  EXPECT_EQ(shape.receive_offsets, (std::vector<std::uint64_t>{0, 3, 3}));
}

TEST(Shape, NumbersSwitchesAsTheyAreMet) {
  const std::vector<std::string> names{"b", "a", "b", "", "a"};
  EXPECT_EQ(numbers_of(names), (std::vector<int>{0, 1, 0, 2, 1}));
  const Switches switches{{0, 3, 3, 1, 0, 0}};
  EXPECT_EQ(switches.leaves(), 3);
  EXPECT_EQ(switches.shared_leaves(), 2);
}

TEST(Shape, ChecksThatItsPartsFit) {
  const Shape good = uniform_shape(NodeMap({0, 1}), 8, 1, 1);
  EXPECT_NO_THROW(check_shape(good, 1));
  EXPECT_THROW(check_shape(good, 2), std::invalid_argument);
  EXPECT_THROW(check_shape(good, -1), std::invalid_argument);
  Shape shape = good;
  shape.bytes.pop_back();
  EXPECT_THROW(check_shape(shape, 0), std::invalid_argument);
  shape = good;
  shape.receive_offsets.push_back(0);
  EXPECT_THROW(check_shape(shape, 0), std::invalid_argument);
  shape = good;
  shape.ports = 0;
  EXPECT_THROW(check_shape(shape, 0), std::invalid_argument);
  shape.ports = kLargestPorts + 1;
  EXPECT_THROW(check_shape(shape, 0), std::invalid_argument);
  shape = good;
  shape.leaders = 0;
  EXPECT_THROW(check_shape(shape, 0), std::invalid_argument);
  const auto hung = [&good](Switches switches) {
    Shape one = good;
    one.switches = std::make_shared<Switches>(std::move(switches));
    return one;
  };
  EXPECT_NO_THROW(check_shape(hung({{1, 1}, {}}), 0));
  EXPECT_NO_THROW(check_shape(hung({{0, 1}, {1, 1}}), 0));
  for (const Switches& wrong :
       {Switches{{0}, {}}, Switches{{0, 2}, {}}, Switches{{-1, 0}, {}}, Switches{{0, 1}, {0}},
        Switches{{0, 1}, {0, 2}}, Switches{{0, 1}, {0, -1}}, Switches{{0, 0}, {0, 0}}}) {
    EXPECT_THROW(check_shape(hung(wrong), 0), std::invalid_argument);
  }
}

}  // namespace
}  // namespace allrail::schedule
