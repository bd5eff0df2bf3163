#include "transport/turn_shares.hpp"

#include <array>
#include <cstddef>

#include <gtest/gtest.h>

namespace allrail::transport {
namespace {

constexpr unsigned kBoth = 0b11;
constexpr unsigned kThree = 0b111;

constexpr int kCompared = 48;  // chunks of each rail

/// So many chunks of each of two rails, watched in turn. Of the second so many of a hundred stay.
void watch(TurnShares& shares, int chunks, int first_stay, int second_stay) {
  for (int i = 0; i < chunks; ++i) {
    shares.saw(0, i * first_stay % 100 < first_stay);
    shares.saw(1, i * second_stay % 100 < second_stay);
  }
}

/// How many of so many turns of one rail each rail of the set takes.
std::array<int, kMaxRails> taken(const TurnShares& shares, int in_turn, unsigned turns,
                                 unsigned rails) {
  std::array<int, kMaxRails> taken{};
  for (unsigned turn = 0; turn < turns; ++turn) {
    ++taken[static_cast<std::size_t>(shares.rail_for(in_turn, turn, rails))];
  }
  return taken;
}

TEST(TurnShares, AreWholeWhileNothingIsKnown) {
  TurnShares shares;
  EXPECT_EQ(taken(shares, 1, 100, kBoth)[1], 100);
  // Of the other rail nothing was seen yet.
  for (int i = 0; i < 1000; ++i) shares.saw(1, true);
  EXPECT_EQ(shares.share(1), 1);
}

TEST(TurnShares, OfARailThatIsFullFall) {
  TurnShares shares;
  watch(shares, kCompared - 1, 0, 50);
  EXPECT_EQ(shares.share(1), 1) << "too few chunks";
  watch(shares, 2 * kCompared + 1, 0, 50);
  EXPECT_NEAR(shares.share(1), 0.51, 0.01);
  EXPECT_EQ(shares.share(0), 1);
  const std::array<int, kMaxRails> of_second = taken(shares, 1, 1000, kBoth);
  EXPECT_NEAR(of_second[1], 1000 * shares.share(1), 1);
  EXPECT_EQ(of_second[0] + of_second[1], 1000);
  EXPECT_EQ(taken(shares, 0, 1000, kBoth)[0], 1000);
}

TEST(TurnShares, FallByFewChunksThatStayWhereManyWereSeen) {
  TurnShares shares;
  watch(shares, kCompared, 0, 12);
  EXPECT_EQ(shares.share(1), 1) << "six of them may be chance";
  watch(shares, 3 * kCompared, 0, 12);
  EXPECT_LT(shares.share(1), 1);
}

TEST(TurnShares, StayWhereAllRailsAreFull) {
  TurnShares shares;
  watch(shares, 1000, 100, 100);
  watch(shares, 1000, 45, 50);
  EXPECT_EQ(shares.share(0), 1);
  EXPECT_EQ(shares.share(1), 1);
}

TEST(TurnShares, AreForgottenSlowlyWhereRailsAreAlike) {
  TurnShares shares;
  watch(shares, 3 * kCompared, 0, 50);
  const double before = shares.share(1);
  watch(shares, 4 * kCompared, 0, 0);
  EXPECT_GT(shares.share(1), before);
  EXPECT_LT(shares.share(1), before + 0.15) << "it may be full again with more";
  watch(shares, 100 * kCompared, 0, 0);
  EXPECT_GT(shares.share(1), 0.95) << "where no rail is full turns are as good";
}

TEST(TurnShares, ComeBackFromTheOtherRail) {
  TurnShares shares;
  watch(shares, 4 * kCompared, 0, 50);
  ASSERT_LT(shares.share(1), 0.5);
  watch(shares, 5 * kCompared, 50, 0);
  EXPECT_EQ(shares.share(1), 1);
  EXPECT_LT(shares.share(0), 1) << "now it is the other way round";
}

TEST(TurnShares, LeaveARailSomeTurns) {
  TurnShares shares;
  watch(shares, 100 * kCompared, 0, 50);
  EXPECT_NEAR(taken(shares, 1, 1600, kBoth)[1], 100, 1) << "or nobody would see it become faster";
}

TEST(TurnShares, AreNotPassedOnForALittle) {
  TurnShares shares;
  watch(shares, kCompared, 0, 50);
  ASSERT_LT(shares.share(1), 1);
  EXPECT_EQ(taken(shares, 1, 100, kBoth)[1], 100);
}

TEST(TurnShares, GoToRailsOfTheSetThatKeepMore) {
  TurnShares shares;
  watch(shares, 4 * kCompared, 0, 50);
  EXPECT_EQ(taken(shares, 1, 100, 0b10)[1], 100) << "there is no other";
  const std::array<int, kMaxRails> all = taken(shares, 1, 8000, kThree);
  EXPECT_GT(all[0], 1000) << "the others share what it gives up";
  EXPECT_GT(all[2], 1000);
  EXPECT_NEAR(all[1], 8000 * shares.share(1), 1);
  EXPECT_EQ(taken(shares, 1, 8000, 0b110)[0], 0);
}

TEST(TurnShares, AskForMoreChunksWhileSomeStay) {
  TurnShares shares;
  watch(shares, 10, 0, 0);
  EXPECT_FALSE(shares.is_some_full());
  shares.saw(0, true);
  EXPECT_TRUE(shares.is_some_full());
  watch(shares, 20 * kCompared, 0, 0);
  EXPECT_FALSE(shares.is_some_full());
}

}  // namespace
}  // namespace allrail::transport
