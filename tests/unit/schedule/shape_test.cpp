#include "coll/schedule/shape.hpp"

#include <stdexcept>

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

TEST(Shape, HasNoMoreLanesThanTheSmallestNodeHasRanks) {
  EXPECT_EQ(uniform_shape(NodeMap({0, 0, 0, 1, 1}), 8, 1, 4).lanes(), 2);
  EXPECT_EQ(uniform_shape(NodeMap({0, 0, 0, 1, 1}), 8, 1, 1).lanes(), 1);
  EXPECT_EQ(uniform_shape(NodeMap({0, 0, 0}), 8, 1, 3).lanes(), 1) << "nobody to talk to";
}

TEST(Shape, GroupsPartitionEveryNode) {
  for (int size = 1; size <= 24; ++size) {
    for (int leaders = 1; leaders <= size; ++leaders) {
      std::vector<int> node_of(size, 0);
      node_of.resize(2 * size, 1);
      const Shape shape = uniform_shape(NodeMap(node_of), 8, 1, leaders);
      int next = 0;
      for (int lane = 0; lane < leaders; ++lane) {
        const Group group = shape.group(1, lane);
        EXPECT_EQ(group.first, next);
        EXPECT_GE(group.count, size / leaders);
        EXPECT_LE(group.count, (size + leaders - 1) / leaders);
        for (int local = group.first; local < group.first + group.count; ++local) {
          EXPECT_EQ(shape.lane_of_local(1, local), lane) << size << " " << leaders << " " << local;
        }
        next += group.count;
      }
      EXPECT_EQ(next, size);
    }
  }
}

TEST(Shape, PacksBlocksInRankOrder) {
  const Shape shape = packed_shape(NodeMap({0, 0, 0}), {3, 0, 5}, 1, 1);
  EXPECT_EQ(shape.receive_offsets, (std::vector<std::uint64_t>{0, 3, 3}));
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
}

}  // namespace
}  // namespace allrail::schedule
