#include "transport/control/late_rank.hpp"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace allrail::transport::control {
namespace {

constexpr std::int64_t kMs = 1'000'000;

LocalProgress last_in(int rank, std::uint64_t last,
                      LocalProgress::State state = LocalProgress::State::Active) {
  LocalProgress progress;
  progress.rank = rank;
  progress.state = state;
  progress.last = last;
  return progress;
}

/// As the control plane does it: again and again.
void observe(LateWatch& watch, const std::vector<LocalProgress>& ranks) {
  watch.observe(ranks);
  watch.observe(ranks);
}

TEST(LateWatchTest, nobody_is_late_while_nobody_waits) {
  LateWatch watch(10);
  observe(watch, {last_in(0, 3), last_in(1, 7)});
  EXPECT_FALSE(watch.late(0).has_value());
  watch.wanted(3);
  EXPECT_FALSE(watch.late(0).has_value());
}

TEST(LateWatchTest, the_local_rank_that_is_furthest_behind_is_late) {
  LateWatch watch(10);
  observe(watch, {last_in(4, 9), last_in(5, 7), last_in(6, 6), last_in(7, 6)});
  watch.wanted(9);
  EXPECT_EQ(watch.late(0), (LateRank{6, 6, 0}));
}

TEST(LateWatchTest, a_rank_that_has_left_is_not_late) {
  LateWatch watch(10);
  observe(watch, {last_in(4, 9), last_in(5, 7, LocalProgress::State::Goodbye)});
  watch.wanted(9);
  EXPECT_FALSE(watch.late(0).has_value());
}

TEST(LateWatchTest, a_rank_between_two_calls_is_not_late) {
  LateWatch watch(10);
  observe(watch, {last_in(4, 9), last_in(5, 8)});
  watch.wanted(9);
  watch.observe(std::vector<LocalProgress>{last_in(4, 9), last_in(5, 0)});
  EXPECT_FALSE(watch.late(0).has_value());
}

TEST(LateWatchTest, news_are_passed_on_with_their_age_and_forgotten) {
  LateWatch watch(10);
  observe(watch, {last_in(0, 9)});
  watch.wanted(9);
  watch.heard({3, 5, 100}, 50 * kMs);
  EXPECT_EQ(watch.late(250 * kMs), (LateRank{3, 5, 300}));
  EXPECT_FALSE(watch.late(2'000 * kMs).has_value());
  watch.heard({3, 5, 2'000}, 2'000 * kMs);
  EXPECT_FALSE(watch.late(2'000 * kMs).has_value()) << "it only goes round";
}

TEST(LateWatchTest, who_is_further_behind_wins_until_there_are_newer_news) {
  LateWatch watch(10);
  observe(watch, {last_in(0, 9)});
  watch.wanted(9);
  watch.heard({3, 7, 0}, 0);
  watch.heard({2, 5, 0}, 0);
  watch.heard({3, 7, 0}, 0);
  EXPECT_EQ(watch.late(0)->rank, 2);
  watch.heard({2, 9, 0}, kMs);  // it has come meanwhile
  EXPECT_FALSE(watch.late(kMs).has_value());
  watch.heard({3, 7, 0}, 2'500 * kMs);
  EXPECT_EQ(watch.late(2'500 * kMs)->rank, 3);
}

TEST(LateWatchTest, ranks_that_the_job_does_not_have_are_not_believed) {
  LateWatch watch(10);
  observe(watch, {last_in(0, 9)});
  watch.wanted(9);
  for (const int rank : {-1, 10, INT32_MAX}) watch.heard({rank, 1, 0}, 0);
  EXPECT_FALSE(watch.late(0).has_value());
}

TEST(LateWatchTest, of_a_local_rank_the_node_knows_more_than_others) {
  LateWatch watch(10);
  observe(watch, {last_in(0, 9), last_in(1, 9)});
  watch.wanted(9);
  watch.heard({1, 5, 0}, 0);
  EXPECT_FALSE(watch.late(0).has_value());
}

}  // namespace
}  // namespace allrail::transport::control
