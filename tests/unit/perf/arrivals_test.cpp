// When ranks come to a call: what is drawn, what may be asked for, and whose time counts.
#include "perf/arrivals.hpp"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "perf/bench_options.hpp"

namespace allrail::perf {
namespace {

constexpr std::int64_t kMostNs = 1'000'000;

TEST(Arrivals, ADelayIsWithinItsBoundsAndTheSameEveryTime) {
  for (int rank = 0; rank < 32; ++rank) {
    for (int call = 0; call < 100; ++call) {
      const std::int64_t delay_ns = arrival_delay_ns(7, rank, call, kMostNs);
      EXPECT_GE(delay_ns, 0);
      EXPECT_LE(delay_ns, kMostNs);
      EXPECT_EQ(delay_ns, arrival_delay_ns(7, rank, call, kMostNs));
      EXPECT_EQ(arrival_delay_ns(7, rank, call, 0), 0);
    }
  }
}

TEST(Arrivals, SeedsRanksAndCallsHaveDelaysOfTheirOwn) {
  std::set<std::int64_t> seen;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (int rank = 0; rank < 16; ++rank) {
      for (int call = 0; call < 16; ++call) {
        seen.insert(arrival_delay_ns(seed, rank, call, std::int64_t{1} << 50));
      }
    }
  }
  EXPECT_EQ(seen.size(), 4U * 16 * 16);
}

// A share of the draws near each value: these are the draws of one seed, so this never changes.
TEST(Arrivals, EveryDelayIsAsLikelyAsAnyOther) {
  std::vector<int> tenths(10, 0);
  double sum = 0;
  constexpr int kRanks = 16, kCalls = 1000;
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int call = 0; call < kCalls; ++call) {
      const std::int64_t delay_ns = arrival_delay_ns(1, rank, call, kMostNs);
      ++tenths[static_cast<std::size_t>(std::min<std::int64_t>(9, delay_ns * 10 / kMostNs))];
      sum += static_cast<double>(delay_ns);
    }
  }
  // Five standard deviations of a binomial with 16,000 draws are 190.
  for (const int count : tenths) EXPECT_NEAR(count, kRanks * kCalls / 10, 190);
  EXPECT_NEAR(sum / kRanks / kCalls / kMostNs, 0.5, 5 * 0.2887 / 126.5);
}

// The last rank of a call is not always the same one.
TEST(Arrivals, EveryRankIsTheLastOneAtTimes) {
  constexpr int kRanks = 8;
  std::set<int> last;
  for (int call = 0; call < 100; ++call) {
    std::vector<std::int64_t> delays;
    for (int rank = 0; rank < kRanks; ++rank) {
      delays.push_back(arrival_delay_ns(1, rank, call, kMostNs));
    }
    last.insert(static_cast<int>(std::ranges::max_element(delays) - delays.begin()));
  }
  EXPECT_EQ(last.size(), static_cast<std::size_t>(kRanks));
}

// What bench_test.py expects, which draws again by itself.
TEST(Arrivals, TheDrawsOfASeedAreThoseOfEveryVersion) {
  EXPECT_EQ(arrival_delay_ns(1, 0, 0, kMostNs), 693'512);
  EXPECT_EQ(arrival_delay_ns(1, 3, 5, kMostNs), 38'129);
  EXPECT_EQ(arrival_delay_ns(2, 3, 5, kMostNs), 153'813);
}

TEST(Arrivals, ATimeHasAUnit) {
  EXPECT_EQ(parse_skew_ns("20us"), 20'000);
  EXPECT_EQ(parse_skew_ns("0.5us"), 500);
  EXPECT_EQ(parse_skew_ns("1.5ms"), 1'500'000);
  EXPECT_EQ(parse_skew_ns("0us"), 0);
  EXPECT_EQ(parse_skew_ns("10s"), 10'000'000'000);
  for (const char* const wrong : {"", "20", "us", "s", "-1us", "1 us", "1usx", "us1", "10.001s",
                                  "1e30s", "nanus", "infs", "1m", "1,5ms"}) {
    EXPECT_EQ(parse_skew_ns(wrong), std::nullopt) << wrong;
  }
}

TEST(Arrivals, TheLargestOfAllRanksIsKept) {
  std::vector<double> largest = {5, 1, 2};
  keep_largest(largest, std::vector<double>{5, 1, 2, 4, 3, 2, 0, 2, 9});
  EXPECT_EQ(largest, (std::vector<double>{5, 3, 9}));
}

}  // namespace
}  // namespace allrail::perf
