#include "transport/queues.hpp"

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

  /// Rails that always have something to do, and carry so much in a millisecond.
  void measure(std::uint64_t first_bytes, std::uint64_t second_bytes) {
    for (int i = 0; i < 100; ++i) look(first_bytes, second_bytes, kLong, kLong);
  }

  Queues queues_;
  Queues::Bytes gone_{};
  std::int64_t now_ns_ = 10 * kMs;
};

TEST_F(QueuesTest, LeaveTheTurnsAloneWhileNothingIsKnown) {
  EXPECT_EQ(queues_.choose(0, kBoth, kTurn), 0);
  look(0, 0, kLong, 0);
  EXPECT_EQ(queues_.choose(0, kBoth, kTurn), 0);
  EXPECT_EQ(queues_.choose(1, kBoth, kTurn), 1);
}

TEST_F(QueuesTest, KnowWhatBusyRailsCarry) {
  measure(60'000, 30'000);
  EXPECT_NEAR(queues_.bytes_per_ns(0), 0.06, 1e-6);
  EXPECT_NEAR(queues_.bytes_per_ns(1), 0.03, 1e-6);
  EXPECT_TRUE(queues_.are_unlike());
}

TEST_F(QueuesTest, SendWhereAPutIsDoneFirst) {
  measure(60'000, 30'000);
  // Of the second rail 6,000 bytes take as long as 12,000 of the first, and a turn is to be won.
  look(0, 0, 3'900, 2'000);
  EXPECT_EQ(queues_.choose(1, kBoth, kTurn), 0);
  look(0, 0, 4'100, 2'000);
  EXPECT_EQ(queues_.choose(1, kBoth, kTurn), 1);
  look(0, 0, 20'000, 2'000);
  EXPECT_EQ(queues_.choose(0, kBoth, kTurn), 1);
  EXPECT_EQ(queues_.choose(0, 0b01, kTurn), 0) << "the other one may not be used";
}

TEST_F(QueuesTest, LeaveTurnsOfAlikeRailsOnlyForMoreThanATurn) {
  measure(60'000, 45'000);
  EXPECT_FALSE(queues_.are_unlike());
  look(0, 0, kTurn, 0);
  EXPECT_EQ(queues_.choose(0, kBoth, kTurn), 0);
  look(0, 0, kTurn + 100, 0);
  EXPECT_EQ(queues_.choose(0, kBoth, kTurn), 1);
}

TEST_F(QueuesTest, DoNotTakeIdleRailsForSlow) {
  for (int i = 0; i < 100; ++i) look(60'000, 30'000, 0, 0);
  EXPECT_GE(queues_.bytes_per_ns(0), 0.0599);
  measure(40'000, 40'000);
  EXPECT_FALSE(queues_.are_unlike());
  for (int i = 0; i < 100; ++i) look(40'000, 10, kLong, 0);
  EXPECT_FALSE(queues_.are_unlike()) << "it carried all that it was given";
}

TEST_F(QueuesTest, SeeThatARailBecameFaster) {
  measure(60'000, 10'000);
  look(60'000, 60'000, kLong, 0);
  EXPECT_FALSE(queues_.are_unlike());
}

TEST_F(QueuesTest, SeeThatARailBecameSlower) {
  measure(60'000, 60'000);
  for (int i = 0; i < 10; ++i) look(60'000, 10'000, kLong, kLong);
  EXPECT_TRUE(queues_.are_unlike());
}

TEST_F(QueuesTest, AreNotDeceivedByProcessesThatDidNotRun) {
  measure(60'000, 60'000);
  for (int i = 0; i < 100; ++i) {
    look(60'000, i % 3 == 0 ? 60'000 : 5'000, kLong, kLong);
    EXPECT_FALSE(queues_.are_unlike());
  }
}

TEST_F(QueuesTest, KnowNothingByAFewLooks) {
  for (int i = 0; i < 4; ++i) look(60'000, 5'000, kLong, kLong);
  EXPECT_FALSE(queues_.are_unlike());
}

TEST_F(QueuesTest, LearnNothingFromLooksThatAreClose) {
  measure(60'000, 60'000);
  for (int i = 0; i < 100; ++i) {
    look(12'000, 0, kLong, kLong, kMs / 10);
    look(48'000, 120'000, kLong, kLong, 19 * kMs / 10);
  }
  EXPECT_NEAR(queues_.bytes_per_ns(1), 0.06, 0.005);
}

TEST_F(QueuesTest, GiveEveryRailATurnNowAndThen) {
  measure(kLong, 1'000);
  look(0, 0, 0, 0);
  int turns = 0;
  for (int i = 0; i < 80; ++i) turns += queues_.choose(1, kBoth, kTurn) == 1 ? 1 : 0;
  EXPECT_EQ(turns, 10);
}

}  // namespace
}  // namespace allrail::transport
