#include <gtest/gtest.h>

#include "coll/allgather/allgather.hpp"
#include "coll/schedule/replay.hpp"
#include "tests/property/schedule/random_shape.hpp"

// Every allgather algorithm is replayed: all ranks end with all blocks in place, whatever the
// interleaving. Up to 7 ranks every combination of nodes, ports, leaders and kind of blocks is run;
// from 8 to 64 ranks every pair of size and ports is run once per algorithm, with node map,
// leaders, blocks and interleaving drawn from a seed that depends on them.
namespace allrail::schedule::testing {
namespace {

using coll::allgather::Algorithm;
using coll::allgather::algorithms;

class AllgatherReplay : public ::testing::TestWithParam<Algorithm> {};

INSTANTIATE_TEST_SUITE_P(Algorithms, AllgatherReplay, ::testing::ValuesIn(algorithms()),
                         [](const auto& tested) {
                           std::string name(tested.param.name);
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(AllgatherReplay, EveryCombinationUpToSevenRanks) {
  std::uint64_t seed = 1;
  Sample sample;
  for (int ranks = 1; ranks <= 7; ++ranks) {
    for (int nodes = 1; nodes <= ranks; ++nodes) {
      for (const bool cyclic : {false, true}) {
        std::vector<int> node_of;
        for (int rank = 0; rank < ranks; ++rank) {
          node_of.push_back(cyclic ? rank % nodes : rank * nodes / ranks);
        }
        for (int ports = 1; ports <= 8; ++ports) {
          for (int leaders = 1; leaders <= (GetParam().level != Level::Flat ? 4 : 1); ++leaders) {
            for (int kind = 0; kind < 3; ++kind) {  // empty, equal, uneven with empty ones
              if (!sample.takes_next()) continue;
              std::vector<std::uint64_t> bytes(ranks, kind == 0 ? 0 : 5);
              for (int rank = 0; kind == 2 && rank < ranks; ++rank) {
                bytes[rank] = rank % 3 == 1 ? 0 : 40 * (rank % 3) + rank;
              }
              const ReplayCall call =
                  make_call(GetParam(), packed_shape(NodeMap(node_of), bytes, ports, leaders));
              const auto violations = replay({&call, 1}, {.seed = ++seed});
              ASSERT_TRUE(violations.empty())
                  << describe(GetParam(), call.shape, seed) << sentences(violations);
            }
          }
        }
      }
    }
  }
}

TEST_P(AllgatherReplay, SampledUpTo64Ranks) {
  for (int ranks = 8; ranks <= 64; ranks += kOneOf) {
    for (int ports = 1; ports <= 8; ++ports) {
      const std::uint64_t seed = static_cast<std::uint64_t>(ranks) * 100 + ports;
      Generator generator(seed);
      NodeMap map = random_map(generator, ranks);
      const int leaders = generator.number(1, 4);
      const ReplayCall call =
          make_call(GetParam(), random_shape(generator, std::move(map), ports, leaders, 24));
      const auto violations = replay({&call, 1}, {.seed = seed});
      ASSERT_TRUE(violations.empty())
          << describe(GetParam(), call.shape, seed) << sentences(violations);
    }
  }
}

// Elections give groupings of some kinds; schedules are right with any.
TEST_P(AllgatherReplay, AnyGroupingUpTo48Ranks) {
  if (GetParam().level == Level::Flat) GTEST_SKIP() << "has no leaders";
  Sample sample;
  for (int ranks = 2; ranks <= 48; ++ranks) {
    for (int ports = 1; ports <= 4; ++ports) {
      if (!sample.takes_next()) continue;
      const std::uint64_t seed = static_cast<std::uint64_t>(ranks) * 10 + ports;
      Generator generator(seed);
      Shape shape = random_shape(generator, random_map(generator, ranks), ports, 1, 24);
      shape.grouping = random_grouping(generator, shape.map, generator.number(1, 6));
      const ReplayCall call = make_call(GetParam(), std::move(shape));
      const auto violations = replay({&call, 1}, {.seed = seed});
      ASSERT_TRUE(violations.empty())
          << describe(GetParam(), call.shape, seed) << sentences(violations);
    }
  }
}

TEST_P(AllgatherReplay, ZeroCopyUpTo64Ranks) {
  if (!GetParam().zero_copy) {
    EXPECT_THROW(coll::allgather::make_zero_copy_schedule(
                     GetParam(), uniform_shape(NodeMap({0, 1}), 8, 1, 1), 0, UINT64_MAX),
                 std::invalid_argument);
    return;
  }
  for (int ranks = 1; ranks <= 64; ranks += kOneOf) {
    for (int ports = 1; ports <= 8; ++ports) {
      const std::uint64_t seed = static_cast<std::uint64_t>(ranks) * 100 + ports;
      Generator generator(seed);
      std::vector<int> node_of(ranks);
      std::iota(node_of.begin(), node_of.end(), 0);
      const ReplayCall call =
          make_call(GetParam(), random_shape(generator, NodeMap(node_of), ports, 1, 24), true);
      const auto violations = replay({&call, 1}, {.seed = seed});
      ASSERT_TRUE(violations.empty())
          << describe(GetParam(), call.shape, seed) << sentences(violations);
      for (const Schedule& schedule : call.schedules) {
        ASSERT_EQ(schedule.slot_bytes, 0U);
        for (const Step& step : schedule.steps) {
          ASSERT_NE(step.to, Memory::Slot);
          ASSERT_GT(step.bytes, 0U);
        }
      }
    }
  }
}

}  // namespace
}  // namespace allrail::schedule::testing
