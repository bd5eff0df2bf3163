#include "coll/schedule/replay.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "coll/allgather/allgather.hpp"

namespace allrail::schedule {
namespace {

ReplayCall small_call() {
  const Shape shape = uniform_shape(NodeMap({0, 0, 1}), 8, 1, 1);
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < 3; ++rank) {
    schedules.push_back(coll::allgather::make_schedule(
        *coll::allgather::find_algorithm("smp-direct"), shape, rank));
  }
  return {shape, schedules};
}

TEST(Replay, OfNoCallsFindsNothing) { EXPECT_TRUE(replay({}, {}).empty()); }

TEST(Replay, OfEmptySchedulesMissesTheResult) {
  ReplayCall call = small_call();
  call.schedules.assign(3, Schedule{});
  const auto violations = replay({&call, 1}, {});
  ASSERT_EQ(violations.size(), 3U);
  EXPECT_EQ(violations[1].fault, Fault::MissingBytes);
  EXPECT_EQ(violations[1].sentence, "call 0, rank 1: byte 0 of the receive buffer is missing");
}

TEST(Replay, IsTheSameForTheSameSeed) {
  ReplayCall call = small_call();
  std::erase_if(call.schedules[1].steps,
                [](const Step& step) { return step.kind == StepKind::AwaitLocal; });
  bool differs = false;
  std::size_t first = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const auto once = replay({&call, 1}, {.seed = seed});
    const auto again = replay({&call, 1}, {.seed = seed});
    ASSERT_EQ(once.size(), again.size());
    for (std::size_t i = 0; i < once.size(); ++i) {
      EXPECT_EQ(once[i].sentence, again[i].sentence);
    }
    first = seed == 1 ? once.size() : first;
    differs = differs || once.size() != first;
  }
  EXPECT_TRUE(differs) << "fifty seeds gave one interleaving";
}

TEST(Replay, SaysWhoWaitsForWhat) {
  ReplayCall call = small_call();
  std::erase_if(call.schedules[2].steps,
                [](const Step& step) { return step.kind == StepKind::Put; });
  std::vector<std::string> sentences;
  for (const Violation& violation : replay({&call, 1}, {})) {
    sentences.push_back(violation.sentence);
  }
  EXPECT_NE(std::ranges::find(sentences, "1 awaits from rank 2 to rank 0 meet no put"),
            sentences.end());
  EXPECT_NE(
      std::ranges::find(sentences, "call 0, rank 0, await of round 0 with peer 2 waits forever"),
      sentences.end());
}

TEST(Replay, StopsListingAfterAFewDozenViolations) {
  std::vector<int> node_of;
  for (int rank = 0; rank < 64; ++rank) {
    node_of.push_back(rank);
  }
  ReplayCall call{uniform_shape(NodeMap(node_of), 8, 1, 1), std::vector<Schedule>(64)};
  EXPECT_EQ(replay({&call, 1}, {}).size(), 32U);
}

}  // namespace
}  // namespace allrail::schedule
