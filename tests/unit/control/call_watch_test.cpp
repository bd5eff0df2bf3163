#include "transport/control/call_watch.hpp"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "include/allrail/error.hpp"

namespace allrail::transport::control {
namespace {

constexpr std::int64_t kWaitNs = 200;

LocalProgress in_call(int rank, std::uint64_t sequence, std::uint64_t stamp, bool in = true) {
  return {rank, LocalProgress::State::Active, in, sequence, stamp, sequence};
}

/// The calls that ranks were in, by local rank: the one of `ranks`, and earlier ones.
class Lines {
 public:
  std::optional<AbortCause> observe(CallWatch& watch, const std::vector<LocalProgress>& ranks,
                                    std::int64_t now_ns) {
    for (std::size_t local = 0; local < ranks.size(); ++local) {
      if (ranks[local].last != 0) stamps[{local, ranks[local].last}] = ranks[local].stamp;
    }
    return watch.observe(ranks, now_ns);
  }
  CallWatch watch() {
    return {kWaitNs, [this](std::size_t local, std::uint64_t call) {
              const auto found = stamps.find({local, call});
              return found == stamps.end() ? 0 : found->second;
            }};
  }
  std::map<std::pair<std::size_t, std::uint64_t>, std::uint64_t> stamps;
};

TEST(CallWatchTest, only_long_waits_are_told_and_equal_ones_once) {
  Lines lines;
  CallWatch watch = lines.watch();
  const std::vector<LocalProgress> ranks{in_call(4, 9, 77), in_call(5, 9, 77), in_call(6, 8, 70),
                                         in_call(7, 9, 77, false)};
  EXPECT_FALSE(lines.observe(watch, ranks, 1000).has_value());
  EXPECT_TRUE(watch.waits().empty());
  EXPECT_FALSE(lines.observe(watch, ranks, 1000 + kWaitNs).has_value());
  EXPECT_EQ(watch.waits(), (std::vector<Wait>{{4, 9, 77}, {6, 8, 70}}));
}

TEST(CallWatchTest, the_next_call_starts_a_new_wait) {
  Lines lines;
  CallWatch watch = lines.watch();
  lines.observe(watch, {in_call(0, 1, 5)}, 0);
  lines.observe(watch, {in_call(0, 2, 6)}, kWaitNs);
  EXPECT_TRUE(watch.waits().empty());
}

TEST(CallWatchTest, different_calls_of_local_ranks_name_both) {
  Lines lines;
  CallWatch watch = lines.watch();
  const std::vector<LocalProgress> ranks{in_call(3, 9, 77), in_call(2, 9, 78)};
  EXPECT_FALSE(lines.observe(watch, ranks, 0).has_value());
  const auto cause = lines.observe(watch, ranks, kWaitNs);
  ASSERT_TRUE(cause.has_value());
  EXPECT_EQ(cause->code, static_cast<int>(Code::Mismatch));
  EXPECT_NE(cause->text.find("rank 2 and rank 3 made different calls as number 9"),
            std::string::npos)
      << cause->text;
}

TEST(CallWatchTest, a_rank_that_left_the_call_is_compared_too) {
  Lines lines;
  CallWatch watch = lines.watch();
  const std::vector<LocalProgress> ranks{in_call(0, 9, 77), in_call(1, 9, 78, false)};
  lines.observe(watch, ranks, 0);
  EXPECT_TRUE(lines.observe(watch, ranks, kWaitNs).has_value());
}

TEST(CallWatchTest, a_rank_that_is_ahead_is_compared_by_its_earlier_calls) {
  Lines lines;
  CallWatch watch = lines.watch();
  lines.stamps[{0, 9}] = 78;
  lines.observe(watch, {in_call(1, 11, 80)}, 0);
  EXPECT_TRUE(watch.compare(std::vector<Wait>{{5, 9, 77}}).has_value());
  EXPECT_FALSE(watch.compare(std::vector<Wait>{{5, 9, 78}, {6, 10, 3}, {7, 12, 4}}).has_value());
}

TEST(CallWatchTest, waits_of_another_node_are_compared) {
  Lines lines;
  CallWatch watch = lines.watch();
  lines.observe(watch, {in_call(0, 9, 77)}, 0);
  EXPECT_FALSE(watch.compare(std::vector<Wait>{{5, 9, 77}, {6, 10, 1}, {7, 8, 1}}).has_value());
  EXPECT_TRUE(watch.compare(std::vector<Wait>{{5, 9, 78}}).has_value());
}

TEST(CallWatchTest, a_rank_that_just_moves_on_is_left_alone) {
  Lines lines;
  CallWatch watch = lines.watch();
  const std::vector<LocalProgress> ranks{in_call(0, 9, 77), in_call(1, 0, 99)};
  lines.observe(watch, ranks, 0);
  EXPECT_FALSE(lines.observe(watch, ranks, kWaitNs).has_value());
  EXPECT_FALSE(watch.compare(std::vector<Wait>{{5, 0, 1}}).has_value());
}

}  // namespace
}  // namespace allrail::transport::control
