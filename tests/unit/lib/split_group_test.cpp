// Who is together after a split, and in which order.
#include "lib/split_group.hpp"

#include <gtest/gtest.h>

namespace allrail {
namespace {

using Wishes = std::vector<SplitWish>;
using Ranks = std::vector<int>;

TEST(SplitGroup, HoldsTheRanksOfOneColor) {
  const Wishes wishes{{0, 0}, {1, 0}, {0, 0}, {2, 0}, {1, 0}};
  EXPECT_EQ(split_group(wishes, 0), (Ranks{0, 2}));
  EXPECT_EQ(split_group(wishes, 2), (Ranks{0, 2}));
  EXPECT_EQ(split_group(wishes, 1), (Ranks{1, 4}));
  EXPECT_EQ(split_group(wishes, 3), (Ranks{3}));
}

TEST(SplitGroup, IsInOrderOfKeysThenOfRanks) {
  EXPECT_EQ(split_group(Wishes{{5, 3}, {5, 2}, {5, 1}, {5, 0}}, 2), (Ranks{3, 2, 1, 0}));
  EXPECT_EQ(split_group(Wishes{{5, 1}, {5, 0}, {5, 1}, {5, 0}}, 0), (Ranks{1, 3, 0, 2}));
  EXPECT_EQ(split_group(Wishes{{0, INT32_MAX}, {0, INT32_MIN}, {0, -1}}, 0), (Ranks{1, 2, 0}));
}

TEST(SplitGroup, IsNobodyForANegativeColor) {
  const Wishes wishes{{-1, 0}, {0, 0}, {-1, 0}, {INT32_MIN, 0}};
  EXPECT_TRUE(split_group(wishes, 0).empty());
  EXPECT_TRUE(split_group(wishes, 2).empty());
  EXPECT_TRUE(split_group(wishes, 3).empty());
  EXPECT_EQ(split_group(wishes, 1), (Ranks{1}));
}

TEST(SplitGroup, IsTheSameOnAllItsRanks) {
  Wishes wishes;
  for (int rank = 0; rank < 60; ++rank) wishes.push_back({rank * 7 % 5 - 1, rank * 11 % 13 - 6});
  std::size_t together = 0;
  for (int rank = 0; rank < 60; ++rank) {
    const Ranks group = split_group(wishes, rank);
    for (const int other : group) EXPECT_EQ(split_group(wishes, other), group);
    const bool wanted = wishes[static_cast<std::size_t>(rank)].color >= 0;
    EXPECT_EQ(std::ranges::count(group, rank), wanted ? 1 : 0);
    together += group.empty() ? 0 : 1;
  }
  EXPECT_EQ(together, 48U);
}

TEST(NodesOfGroup, AreNumberedByTheirFirstRank) {
  const Ranks node_of{0, 0, 1, 1, 2, 2};
  EXPECT_EQ(nodes_of_group(node_of, Ranks{0, 1}), (Ranks{0, 0}));
  EXPECT_EQ(nodes_of_group(node_of, Ranks{5, 2, 4, 0}), (Ranks{0, 1, 0, 2}));
  EXPECT_EQ(nodes_of_group(node_of, Ranks{3}), (Ranks{0}));
}

}  // namespace
}  // namespace allrail
