#include "coll/allgather/allgather.hpp"

#include <set>
#include <stdexcept>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

namespace allrail::coll::allgather {
namespace {

using Puts = std::vector<std::tuple<int, int, int>>;  // peer, first, count

Puts puts(const schedule::Exchange& exchange, std::size_t round) {
  Puts result;
  for (const schedule::Transfer& put : exchange.rounds.at(round).puts) {
    result.emplace_back(put.peer, put.first, put.count);
  }
  return result;
}

TEST(AllgatherTable, NamesEveryAlgorithmOnce) {
  std::set<std::string> names;
  for (const Algorithm& algorithm : algorithms()) {
    EXPECT_TRUE(names.emplace(algorithm.name).second) << algorithm.name;
    EXPECT_EQ(find_algorithm(algorithm.name), &algorithm);
    EXPECT_EQ(algorithm.level != schedule::Level::Flat, algorithm.name.starts_with("smp-"));
    EXPECT_FALSE(algorithm.description.empty());
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"bruck", "direct", "recursive-doubling", "ring", "smp-bruck",
                                   "smp-direct", "smp-direct-gather-broadcast",
                                   "smp-gather-broadcast", "smp-multi-leader-recursive-doubling",
                                   "smp-multi-leader-recursive-doubling-point-to-point",
                                   "smp-multi-leader-ring", "smp-multi-leader-ring-point-to-point",
                                   "smp-recursive-doubling", "smp-ring", "smp-ring-chain"}));
  EXPECT_EQ(find_algorithm("linear"), nullptr);
}

TEST(AllgatherTable, RefusesABadShapeBeforeTheAlgorithmSeesIt) {
  schedule::Shape shape = schedule::uniform_shape(schedule::NodeMap({0, 1}), 8, 1, 1);
  shape.ports = 0;
  for (const Algorithm& algorithm : algorithms()) {
    EXPECT_THROW(make_schedule(algorithm, shape, 0), std::invalid_argument);
  }
  shape.ports = 65535;
  for (const Algorithm& algorithm : algorithms()) {
    EXPECT_NO_THROW(make_schedule(algorithm, shape, 0));
  }
}

TEST(Direct, SendsToTheNextParticipantsAsInThePaper) {
  const schedule::Exchange exchange = direct(9, 7, 3);
  ASSERT_EQ(exchange.rounds.size(), 3U);
  EXPECT_EQ(puts(exchange, 0), (Puts{{8, 7, 1}, {0, 7, 1}, {1, 7, 1}}));
  EXPECT_EQ(puts(exchange, 2), (Puts{{5, 7, 1}, {6, 7, 1}}));
}

TEST(Bruck, FollowsFigure5OfThePaper) {  // 2008, nine processes, two ports
  const schedule::Exchange exchange = bruck(9, 4, 2);
  ASSERT_EQ(exchange.rounds.size(), 2U);
  EXPECT_EQ(exchange.placement, schedule::Placement::Relative);
  EXPECT_EQ(puts(exchange, 0), (Puts{{3, 4, 1}, {2, 4, 1}}));
  EXPECT_EQ(puts(exchange, 1), (Puts{{1, 4, 3}, {7, 4, 3}}));
}

TEST(Bruck, SharesThePartialLastRoundOverThePorts) {
  const schedule::Exchange exchange = bruck(7, 0, 2);  // 3 held, 4 missing
  ASSERT_EQ(exchange.rounds.size(), 2U);
  EXPECT_EQ(puts(exchange, 1), (Puts{{4, 0, 2}, {2, 0, 2}}));
}

TEST(RecursiveDoubling, FollowsFigure4OfThePaper) {  // 2008, nine processes, two ports
  const schedule::Exchange exchange = recursive_doubling(9, 4, 2);
  ASSERT_EQ(exchange.rounds.size(), 2U);
  EXPECT_EQ(puts(exchange, 0), (Puts{{5, 4, 1}, {3, 4, 1}}));
  EXPECT_EQ(puts(exchange, 1), (Puts{{7, 3, 3}, {1, 3, 3}}));
}

TEST(RecursiveDoubling, WrapsGroupsWhenTheyDoNotFit) {
  // 6 = 2 * 3: one aligned step in pairs, then three pairs pass on what they have.
  const schedule::Exchange exchange = recursive_doubling(6, 1, 1);
  ASSERT_EQ(exchange.rounds.size(), 3U);
  EXPECT_EQ(puts(exchange, 0), (Puts{{0, 1, 1}}));
  EXPECT_EQ(puts(exchange, 1), (Puts{{3, 0, 2}}));
  EXPECT_EQ(puts(exchange, 2), (Puts{{5, 0, 2}}));
}

TEST(Ring, PassesBlocksOnInBothDirections) {
  const schedule::Exchange one = ring(5, 0, 1);
  ASSERT_EQ(one.rounds.size(), 4U);
  EXPECT_EQ(puts(one, 0), (Puts{{1, 0, 1}}));
  EXPECT_EQ(puts(one, 3), (Puts{{1, 2, 1}}));
  const schedule::Exchange two = ring(6, 0, 2);
  ASSERT_EQ(two.rounds.size(), 3U);
  EXPECT_EQ(puts(two, 1), (Puts{{1, 5, 1}, {5, 1, 1}}));
  EXPECT_EQ(puts(two, 2), (Puts{{1, 4, 1}}));
}

TEST(Ring, UsesChordsForFurtherPorts) {
  // Distances 1..3 forward, 4..6 by a chord of stride 5, 7..9 backward.
  const schedule::Exchange exchange = ring(10, 0, 3);
  ASSERT_EQ(exchange.rounds.size(), 3U);
  EXPECT_EQ(puts(exchange, 0), (Puts{{1, 0, 1}, {5, 0, 1}, {9, 0, 1}}));
  EXPECT_EQ(puts(exchange, 1), (Puts{{1, 9, 1}, {5, 9, 1}, {9, 1, 1}}));
  EXPECT_EQ(puts(exchange, 2), (Puts{{1, 8, 1}, {5, 1, 1}, {9, 2, 1}}));
}

TEST(GatherBroadcast, NeverSendsBackWhatASubtreeGathered) {
  const schedule::Exchange root = gather_broadcast(6, 0, 1);
  ASSERT_EQ(root.rounds.size(), 6U);
  EXPECT_EQ(puts(root, 3), (Puts{{4, 0, 4}}));
  EXPECT_EQ(puts(root, 4), (Puts{{2, 4, 4}}));
  EXPECT_EQ(puts(root, 5), (Puts{{1, 2, 5}}));
  const schedule::Exchange four = gather_broadcast(6, 4, 1);
  EXPECT_EQ(puts(four, 2), (Puts{{0, 4, 2}}));
  EXPECT_EQ(puts(four, 5), (Puts{{5, 0, 5}}));
}

TEST(DirectGatherBroadcast, SendsEveryBlockToTheRootAndAllOthersDownTheTree) {
  const schedule::Exchange root = direct_gather_broadcast(6, 0, 2);
  ASSERT_EQ(root.rounds.size(), 3U + 2U);
  EXPECT_EQ(root.rounds[0].awaits.size(), 2U);
  EXPECT_EQ(root.rounds[2].awaits.size(), 1U);
  EXPECT_EQ(puts(root, 3), (Puts{{3, 4, 5}}));
  EXPECT_EQ(puts(root, 4), (Puts{{1, 2, 5}, {2, 3, 5}}));
  const schedule::Exchange three = direct_gather_broadcast(6, 3, 2);
  EXPECT_EQ(puts(three, 0), Puts{});
  EXPECT_EQ(puts(three, 1), (Puts{{0, 3, 1}}));
  EXPECT_EQ(puts(three, 4), (Puts{{4, 5, 5}, {5, 0, 5}}));
}

}  // namespace
}  // namespace allrail::coll::allgather
