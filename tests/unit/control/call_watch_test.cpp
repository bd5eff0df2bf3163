#include "transport/control/call_watch.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "include/allrail/error.hpp"

namespace allrail::transport::control {
namespace {

constexpr std::int64_t kWaitNs = 200;

LocalProgress in_call(int rank, std::uint64_t sequence, std::uint64_t stamp, bool in = true) {
  LocalProgress progress{rank, LocalProgress::State::Active, in, sequence, stamp, sequence};
  progress.remember(sequence, stamp);
  return progress;
}

TEST(CallWatchTest, only_long_waits_are_told_and_equal_ones_once) {
  CallWatch watch(kWaitNs);
  const std::vector<LocalProgress> ranks{in_call(4, 9, 77), in_call(5, 9, 77), in_call(6, 8, 70),
                                         in_call(7, 9, 77, false)};
  EXPECT_FALSE(watch.observe(ranks, 1000).has_value());
  EXPECT_TRUE(watch.waits().empty());
  EXPECT_FALSE(watch.observe(ranks, 1000 + kWaitNs).has_value());
  EXPECT_EQ(watch.waits(), (std::vector<Wait>{{4, 9, 77}, {6, 8, 70}}));
}

TEST(CallWatchTest, the_next_call_starts_a_new_wait) {
  CallWatch watch(kWaitNs);
  watch.observe(std::vector<LocalProgress>{in_call(0, 1, 5)}, 0);
  watch.observe(std::vector<LocalProgress>{in_call(0, 2, 6)}, kWaitNs);
  EXPECT_TRUE(watch.waits().empty());
}

TEST(CallWatchTest, different_calls_of_local_ranks_name_both) {
  CallWatch watch(kWaitNs);
  const std::vector<LocalProgress> ranks{in_call(3, 9, 77), in_call(2, 9, 78)};
  EXPECT_FALSE(watch.observe(ranks, 0).has_value());
  const auto cause = watch.observe(ranks, kWaitNs);
  ASSERT_TRUE(cause.has_value());
  EXPECT_EQ(cause->code, static_cast<int>(Code::Mismatch));
  EXPECT_NE(cause->text.find("rank 2 and rank 3 made different calls as number 9"),
            std::string::npos)
      << cause->text;
}

TEST(CallWatchTest, a_rank_that_left_the_call_is_compared_too) {
  CallWatch watch(kWaitNs);
  const std::vector<LocalProgress> ranks{in_call(0, 9, 77), in_call(1, 9, 78, false)};
  watch.observe(ranks, 0);
  EXPECT_TRUE(watch.observe(ranks, kWaitNs).has_value());
}

TEST(CallWatchTest, a_rank_that_is_ahead_is_compared_by_its_earlier_calls) {
  CallWatch watch(kWaitNs);
  LocalProgress ahead = in_call(1, 11, 80);
  ahead.remember(9, 78);
  watch.observe(std::vector<LocalProgress>{ahead}, 0);
  EXPECT_TRUE(watch.compare(std::vector<Wait>{{5, 9, 77}}).has_value());
  EXPECT_FALSE(watch.compare(std::vector<Wait>{{5, 9, 78}, {6, 10, 3}, {7, 12, 4}}).has_value());
}

TEST(CallWatchTest, waits_of_another_node_are_compared) {
  CallWatch watch(kWaitNs);
  watch.observe(std::vector<LocalProgress>{in_call(0, 9, 77)}, 0);
  EXPECT_FALSE(watch.compare(std::vector<Wait>{{5, 9, 77}, {6, 10, 1}, {7, 8, 1}}).has_value());
  EXPECT_TRUE(watch.compare(std::vector<Wait>{{5, 9, 78}}).has_value());
}

TEST(CallWatchTest, a_rank_that_just_moves_on_is_left_alone) {
  CallWatch watch(kWaitNs);
  const std::vector<LocalProgress> ranks{in_call(0, 9, 77), in_call(1, 0, 99)};
  watch.observe(ranks, 0);
  EXPECT_FALSE(watch.observe(ranks, kWaitNs).has_value());
  EXPECT_FALSE(watch.compare(std::vector<Wait>{{5, 0, 1}}).has_value());
}

}  // namespace
}  // namespace allrail::transport::control
