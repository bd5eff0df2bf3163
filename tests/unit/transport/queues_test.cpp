#include "transport/queues.hpp"

#include <array>
#include <cstdint>

#include <gtest/gtest.h>

namespace allrail::transport {
namespace {

constexpr unsigned kBoth = 0b11;
constexpr std::uint64_t kLong = 1'000'000;
constexpr std::uint64_t kTurn = 4'000;
constexpr std::int64_t kMs = 1'000'000;

/// Two rails, looked at once a millisecond.
class QueuesTest : public ::testing::Test {
 protected:
  /// So many bytes leave each rail until the look; `left` stay there.
  void look(std::uint64_t first_gone, std::uint64_t second_gone, std::uint64_t first_left,
            std::uint64_t second_left, std::int64_t passed_ns = kMs) {
    now_ns_ += passed_ns;
    gone_[0] += first_gone;
    gone_[1] += second_gone;
    queues_.look({gone_[0] + first_left, gone_[1] + second_left}, {first_left, second_left},
                 now_ns_);
  }

  int choose(int in_turn, unsigned rails, std::uint64_t bytes) {
    return queues_.choose(in_turn, rails, bytes, false).rail;
  }

  /// Rails that always have something to do, and carry so much in a millisecond.
  void measure(std::uint64_t first_bytes, std::uint64_t second_bytes) {
    for (int i = 0; i < 100; ++i) look(first_bytes, second_bytes, kLong, kLong);
  }

  Queues queues_;
  Queues::Bytes gone_{};
  std::int64_t now_ns_ = 10 * kMs;
};

TEST_F(QueuesTest, LeaveTheTurnsAloneWhileNothingIsKnown) {
  EXPECT_EQ(choose(0, kBoth, kTurn), 0);
  look(0, 0, kLong, 0);
  EXPECT_EQ(choose(0, kBoth, kTurn), 0);
  EXPECT_EQ(choose(1, kBoth, kTurn), 1);
}

TEST_F(QueuesTest, KnowWhatBusyRailsCarry) {
  measure(60'000, 30'000);
  EXPECT_NEAR(queues_.bytes_per_ns(0), 0.06, 1e-6);
  EXPECT_NEAR(queues_.bytes_per_ns(1), 0.03, 1e-6);
  EXPECT_TRUE(queues_.are_unlike(kBoth));
}

TEST_F(QueuesTest, SendWhereAPutIsDoneFirst) {
  measure(60'000, 30'000);
  // Of the second rail 6,000 bytes take as long as 12,000 of the first, and a turn is to be won.
  look(0, 0, 3'900, 2'000);
  EXPECT_EQ(choose(1, kBoth, kTurn), 0);
  look(0, 0, 4'100, 2'000);
  EXPECT_EQ(choose(1, kBoth, kTurn), 1);
  look(0, 0, 20'000, 2'000);
  EXPECT_EQ(choose(0, kBoth, kTurn), 1);
  EXPECT_EQ(choose(0, 0b01, kTurn), 0) << "the other one may not be used";
}

TEST_F(QueuesTest, LeaveTurnsOfAlikeRailsOnlyForMoreThanATurn) {
  measure(60'000, 45'000);
  EXPECT_FALSE(queues_.are_unlike(kBoth));
  look(0, 0, kTurn, 0);
  EXPECT_EQ(choose(0, kBoth, kTurn), 0);
  look(0, 0, kTurn + 100, 0);
  EXPECT_EQ(choose(0, kBoth, kTurn), 1);
}

TEST_F(QueuesTest, DoNotTakeForSlowWhatWasGivenLittle) {
  for (int i = 0; i < 100; ++i) look(60'000, 10'000, 0, 0);
  for (int i = 0; i < 100; ++i) look(30'000, 30'000, 0, 0);
  EXPECT_FALSE(queues_.are_unlike(kBoth)) << "each carried all that it was given";
}

TEST_F(QueuesTest, SeeThatARailBecameFaster) {
  measure(60'000, 10'000);
  look(60'000, 60'000, kLong, 0);
  EXPECT_FALSE(queues_.are_unlike(kBoth));
}

TEST_F(QueuesTest, SeeThatARailBecameSlower) {
  measure(60'000, 60'000);
  for (int i = 0; i < 10; ++i) look(60'000, 10'000, kLong, kLong);
  EXPECT_TRUE(queues_.are_unlike(kBoth));
}

TEST_F(QueuesTest, AreNotDeceivedByProcessesThatDidNotRun) {
  measure(60'000, 60'000);
  for (int i = 0; i < 100; ++i) {
    look(60'000, i % 3 == 0 ? 60'000 : 5'000, kLong, kLong);
    EXPECT_FALSE(queues_.are_unlike(kBoth));
  }
}

TEST_F(QueuesTest, KnowNothingByAFewLooks) {
  for (int i = 0; i < 4; ++i) look(60'000, 5'000, kLong, kLong);
  EXPECT_FALSE(queues_.are_unlike(kBoth));
}

TEST_F(QueuesTest, LearnNothingFromLooksThatAreClose) {
  measure(60'000, 60'000);
  for (int i = 0; i < 100; ++i) {
    look(12'000, 0, kLong, kLong, kMs / 10);
    look(48'000, 120'000, kLong, kLong, 19 * kMs / 10);
  }
  EXPECT_NEAR(queues_.bytes_per_ns(1), 0.06, 0.005);
}

TEST_F(QueuesTest, TryEveryRailNowAndThen) {
  constexpr unsigned kThree = 0b111;
  Queues queues;
  Queues::Bytes posted{kLong, kLong, kLong};
  const Queues::Bytes left{kLong, kLong, kLong};
  for (int i = 1; i < 20; ++i) {
    posted[0] += 100'000;
    posted[1] += 1'000;
    posted[2] += 1'000;
    queues.look(posted, left, i * kMs);
  }
  for (std::size_t i = 0; i < 3; ++i) posted[i] -= kLong;
  queues.look(posted, {}, 20 * kMs);
  std::array<int, 3> trials{};
  for (int turn = 0; turn < 240; ++turn) {
    const int in_turn = turn % 3;
    const Queues::Choice choice = queues.choose(in_turn, kThree, kTurn, true);
    ASSERT_EQ(choice.rail, choice.is_trial ? in_turn : 0);
    trials[static_cast<std::size_t>(in_turn)] += choice.is_trial ? 1 : 0;
    EXPECT_FALSE(queues.choose(in_turn, kThree, kTurn, false).is_trial) << "half a turn";
  }
  EXPECT_EQ(trials, (std::array<int, 3>{0, 10, 10}));
}

TEST_F(QueuesTest, ForgetWhatALinkBeforeCarried) {
  measure(60'000, 10'000);
  queues_.forget(1);
  EXPECT_FALSE(queues_.are_unlike(kBoth));
}

TEST_F(QueuesTest, OfRailsThatMayNotBeUsedDoNotMatter) {
  measure(60'000, 10'000);
  EXPECT_FALSE(queues_.are_unlike(0b01));
}

/// As where acknowledgements of one rail came late once, and there was never a queue again.
TEST_F(QueuesTest, ForgetWhatAnIdleRailCarriedOnce) {
  for (int i = 0; i < 20; ++i) look(10'000, 10'000, 0, 0);
  look(10'000, 90'000, 0, 0);
  EXPECT_TRUE(queues_.are_unlike(kBoth));
  for (int i = 0; i < 100; ++i) look(10'000, 10'000, 0, 0);
  EXPECT_FALSE(queues_.are_unlike(kBoth));
}

}  // namespace
}  // namespace allrail::transport
