// The barrier by what it is for: while one rank stays outside, nobody leaves.
#include "coll/barrier/barrier.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "coll/schedule/replay.hpp"

namespace allrail::schedule::testing {
namespace {

NodeMap random_map(int nodes, int most_per_node, std::mt19937_64& random) {
  std::vector<int> node_of;
  for (int node = 0; node < nodes; ++node) {
    const auto size = 1 + random() % static_cast<unsigned>(most_per_node);
    node_of.insert(node_of.end(), size, node);
  }
  std::ranges::shuffle(node_of, random);
  return NodeMap(node_of);
}

std::vector<Schedule> schedules_of(const Shape& shape) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    schedules.push_back(coll::barrier::make_schedule(shape, rank));
  }
  return schedules;
}

/// Runs all ranks but `outside` as far as they come; returns who left.
std::vector<int> who_leaves(const Shape& shape, const std::vector<Schedule>& schedules,
                            int outside) {
  const auto ranks = static_cast<std::size_t>(shape.ranks());
  std::vector<std::size_t> at(ranks, 0);
  std::vector<std::uint32_t> flag(ranks, 0);
  std::map<std::pair<int, int>, int> signals;  // from, to: sent and not yet taken
  const auto passes = [&](int rank, const Step& step) {
    const int node = shape.map.node_of[static_cast<std::size_t>(rank)];
    switch (step.kind) {
      case StepKind::Publish:
        flag[static_cast<std::size_t>(rank)] = step.stage;
        return true;
      case StepKind::AwaitLocal: {
        const auto& local = shape.map.ranks_of[static_cast<std::size_t>(node)];
        const int other = local[static_cast<std::size_t>(step.peer)];
        return flag[static_cast<std::size_t>(other)] >= step.stage;
      }
      case StepKind::Put:
        ++signals[{rank, step.peer}];
        return true;
      case StepKind::Await:
        return signals[{step.peer, rank}] > 0 && signals[{step.peer, rank}]-- > 0;
      default:
        return true;
    }
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < shape.ranks(); ++rank) {
      const auto& steps = schedules[static_cast<std::size_t>(rank)].steps;
      auto& place = at[static_cast<std::size_t>(rank)];
      while (rank != outside && place < steps.size() && passes(rank, steps[place])) {
        ++place;
        moved = true;
      }
    }
  }
  std::vector<int> left;
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (rank != outside && at[index] == schedules[index].steps.size()) left.push_back(rank);
  }
  return left;
}

TEST(Barrier, NobodyLeavesBeforeEverybodyHasEntered) {
  for (int nodes = 1; nodes <= 40; ++nodes) {
    for (int ports = 1; ports <= 8; ++ports) {
      std::mt19937_64 random(static_cast<std::uint64_t>(nodes * 100 + ports));
      const Shape shape = uniform_shape(random_map(nodes, 3, random), 0, ports, 1);
      const auto schedules = schedules_of(shape);
      for (int outside = 0; outside < shape.ranks(); ++outside) {
        if (shape.ranks() == 1) continue;
        ASSERT_EQ(who_leaves(shape, schedules, outside), std::vector<int>())
            << nodes << " nodes, " << ports << " ports, rank " << outside << " outside";
      }
      ASSERT_EQ(static_cast<int>(who_leaves(shape, schedules, -1).size()), shape.ranks());
    }
  }
}

TEST(Barrier, IsAValidScheduleInSequences) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const int nodes = 1 + static_cast<int>(random() % 9);
    const int ports = 1 + static_cast<int>(random() % 4);
    const Shape shape = uniform_shape(random_map(nodes, 4, random), 0, ports, 1);
    std::vector<ReplayCall> calls;
    for (int call = 0; call < 4; ++call) calls.emplace_back(shape, schedules_of(shape));
    const auto violations = replay(calls, {seed, 1 + static_cast<int>(random() % 3), true});
    ASSERT_TRUE(violations.empty()) << "seed " << seed << ": " << violations.front().sentence;
  }
}

TEST(Barrier, TakesLogRoundsOfOneHeaderPerSignal) {
  for (int nodes = 1; nodes <= 130; ++nodes) {
    for (int ports = 1; ports <= 8; ++ports) {
      int expected = 0;
      for (long long known = 1; known < nodes; known *= ports + 1) ++expected;
      EXPECT_EQ(coll::barrier::rounds(nodes, ports), expected);
      std::vector<int> node_of;
      for (int node = 0; node < nodes; ++node) node_of.push_back(node);
      const Shape shape = uniform_shape(NodeMap(node_of), 0, ports, 1);
      const Schedule schedule = coll::barrier::make_schedule(shape, 0);
      std::vector<int> puts(static_cast<std::size_t>(expected), 0);
      for (const Step& step : schedule.steps) {
        if (step.kind != StepKind::Put) continue;
        EXPECT_EQ(step.bytes, kHeaderBytes);
        ++puts[step.round];
      }
      for (const int count : puts) EXPECT_LE(count, ports);
    }
  }
}

TEST(Barrier, PortsThatSaveNoRoundAreNotTaken) {
  EXPECT_EQ(coll::barrier::ports_for(1, 2), 1);
  EXPECT_EQ(coll::barrier::ports_for(2, 2), 1);
  EXPECT_EQ(coll::barrier::ports_for(3, 2), 2);
  EXPECT_EQ(coll::barrier::ports_for(4, 2), 1);
  EXPECT_EQ(coll::barrier::ports_for(9, 4), 2);
  EXPECT_EQ(coll::barrier::ports_for(64, 7), 7);
}

}  // namespace
}  // namespace allrail::schedule::testing
