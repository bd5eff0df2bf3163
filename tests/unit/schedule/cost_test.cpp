#include "coll/schedule/cost.hpp"

#include <gtest/gtest.h>

namespace allrail::schedule {
namespace {

Step put(int round, int port, std::uint64_t bytes) {
  return {.kind = StepKind::Put,
          .round = static_cast<std::uint16_t>(round),
          .port = static_cast<std::uint16_t>(port),
          .bytes = bytes};
}

TEST(Cost, IsTheBusiestPortOfEveryRound) {
  // Round 0: rank 0 has 30 on one port in two puts, rank 1 has 25 on each of two. Round 1 is local,
  // round 2 has one put of 7.
  const std::vector<Schedule> schedules{
      {{put(0, 0, 10), put(0, 0, 20), put(2, 0, 7)}, 0, 0, 3},
      {{put(0, 0, 25), put(0, 1, 25), {.kind = StepKind::Copy, .round = 1, .bytes = 1000}},
       0,
       0,
       3},
  };
  const Cost cost = cost_of(2, [&](int rank) { return schedules[rank]; },
                            {.startup_s = 2, .seconds_per_byte = 0.5});
  EXPECT_EQ(cost.steps, 2);
  EXPECT_EQ(cost.bytes_per_port, 37U);
  EXPECT_DOUBLE_EQ(cost.seconds, 2 * 2 + 37 * 0.5);
}

TEST(Cost, OfNothingIsNothing) {
  const Cost cost = cost_of(1, [](int) { return Schedule{}; }, {1, 1});
  EXPECT_EQ(cost.steps, 0);
  EXPECT_EQ(cost.bytes_per_port, 0U);
  EXPECT_EQ(cost.seconds, 0);
}

}  // namespace
}  // namespace allrail::schedule
