#include <algorithm>
#include <initializer_list>

#include <gtest/gtest.h>

#include "coll/allgather/allgather.hpp"
#include "coll/schedule/lower.hpp"
#include "coll/schedule/replay.hpp"
#include "tests/property/schedule/random_shape.hpp"

// Calls into a receive buffer that the ranks of a node share, straight and through the slot: the
// result is there on every rank when it returns, whatever the interleaving, and stays there until
// this rank enters the next call. Then schedules are broken, and the checker must find it.
namespace allrail::schedule::testing {
namespace {

using coll::allgather::Algorithm;
using coll::allgather::algorithms;
using coll::allgather::find_algorithm;
using coll::allgather::is_straight_between_nodes;

std::vector<Algorithm> algorithms_over_nodes() {
  std::vector<Algorithm> found;
  std::ranges::copy_if(algorithms(), std::back_inserter(found),
                       [](const Algorithm& one) { return one.level == Level::Smp; });
  return found;
}

class NodeShared : public ::testing::TestWithParam<Algorithm> {
 protected:
  /// Whether there is a schedule of this kind; where there is none, that it is said.
  static bool is_made(bool straight) {
    if (!straight || is_straight_between_nodes(GetParam())) return true;
    EXPECT_THROW(make_node_shared_call(GetParam(), uniform_shape(NodeMap({0, 1}), 8, 1, 1), true),
                 std::invalid_argument);
    return false;
  }
};

INSTANTIATE_TEST_SUITE_P(Algorithms, NodeShared, ::testing::ValuesIn(algorithms_over_nodes()),
                         [](const auto& tested) {
                           std::string name(tested.param.name);
                           std::erase(name, '-');
                           return name;
                         });

void expect_right(const Algorithm& algorithm, const std::vector<ReplayCall>& calls,
                  std::uint64_t seed, int slots) {
  const auto violations = replay(calls, {.seed = seed, .slots = slots});
  ASSERT_TRUE(violations.empty()) << describe(algorithm, calls.front().shape, seed)
                                  << sentences(violations);
}

TEST_P(NodeShared, EveryCombinationUpToSixRanks) {
  std::uint64_t seed = 1;
  for (const bool straight : {true, false}) {
    if (!is_made(straight)) continue;
    for (int ranks = 1; ranks <= 6; ++ranks) {
      for (int nodes = 1; nodes <= ranks; ++nodes) {
        for (const bool cyclic : {false, true}) {
          std::vector<int> node_of;
          for (int rank = 0; rank < ranks; ++rank) {
            node_of.push_back(cyclic ? rank % nodes : rank * nodes / ranks);
          }
          for (int ports = 1; ports <= 4; ++ports) {
            for (int kind = 0; kind < 3; ++kind) {  // empty, equal, uneven with empty ones
              std::vector<std::uint64_t> bytes(ranks, kind == 0 ? 0 : 5);
              for (int rank = 0; kind == 2 && rank < ranks; ++rank) {
                bytes[rank] = rank % 3 == 1 ? 0 : 40 * (rank % 3) + rank;
              }
              const ReplayCall call = make_node_shared_call(
                  GetParam(), packed_shape(NodeMap(node_of), bytes, ports, 1), straight);
              ASSERT_NO_FATAL_FAILURE(expect_right(GetParam(), {call, call}, ++seed, 2));
            }
          }
        }
      }
    }
  }
}

TEST_P(NodeShared, SequencesOfAnyShape) {
  for (const bool straight : {true, false}) {
    if (!is_made(straight)) continue;
    for (std::uint64_t seed = 1; seed <= 400; seed += kOneOf) {
      Generator generator(seed);
      const NodeMap map = random_map(generator, generator.number(1, 24));
      // One for all calls: whoever leads has registered the memory.
      const auto grouping =
          generator.number(0, 1) == 0 ? random_grouping(generator, map, 1) : nullptr;
      std::vector<ReplayCall> calls;
      const int count = generator.number(1, 4);
      for (int call = 0; call < count; ++call) {
        Shape shape = random_shape(generator, map, generator.number(1, 4), 1, 40);
        shape.grouping = grouping;
        calls.push_back(make_node_shared_call(GetParam(), std::move(shape), straight,
                                              static_cast<std::uint64_t>(generator.number(1, 60))));
      }
      ASSERT_NO_FATAL_FAILURE(expect_right(GetParam(), calls, seed, generator.number(1, 3)));
    }
  }
}

TEST_P(NodeShared, StraightNobodyCopiesOut) {
  if (!is_made(true)) return;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Generator generator(seed);
    const NodeMap map = random_map(generator, generator.number(1, 24));
    Shape shape = random_shape(generator, map, generator.number(1, 4), 1, 40);
    if (generator.number(0, 1) == 0) shape.grouping = random_grouping(generator, map, 1);
    const ReplayCall call = make_node_shared_call(GetParam(), std::move(shape), true, 30);
    for (int rank = 0; rank < map.ranks(); ++rank) {
      const Schedule& schedule = call.schedules[rank];
      std::uint64_t copied = 0;
      for (const Step& step : schedule.steps) {
        if (step.kind == StepKind::Copy) {
          EXPECT_EQ(step.from, Memory::Send);
          copied += step.bytes;
        }
        if (step.kind == StepKind::Put || step.kind == StepKind::Await) {
          EXPECT_EQ(rank, call.shape.talking_rank(map.node_of[rank])) << "does not lead";
          EXPECT_LE(step.bytes, 30U);
          EXPECT_EQ(step.to, Memory::Receive);
        }
      }
      EXPECT_EQ(copied, call.shape.bytes[rank]) << describe(GetParam(), call.shape, seed);
      EXPECT_LE(schedule.slot_bytes, kHeaderBytes);
    }
  }
}

TEST_P(NodeShared, RunsAreBounded) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    if (!is_made(true)) return;
    Generator generator(seed);
    const NodeMap map = random_map(generator, generator.number(2, 40));
    const Shape shape = uniform_shape(map, 8, generator.number(1, 4), 1);
    const std::uint64_t bound = most_runs_per_transfer(GetParam().exchange, shape);
    for (const Schedule& schedule : make_node_shared_call(GetParam(), shape, true).schedules) {
      std::uint64_t puts = 0;
      const Step* before = nullptr;
      for (const Step& step : schedule.steps) {
        if (step.kind != StepKind::Put) continue;
        const bool same =
            before != nullptr && before->round == step.round && before->port == step.port;
        puts = same ? puts + 1 : 1;
        before = &step;
        ASSERT_LE(puts, bound) << describe(GetParam(), shape, seed);
      }
    }
  }
}

// ---- what the checker must find ----

/// Two calls into the same memory, on shapes in which every step matters.
std::vector<std::vector<ReplayCall>> correct_sequences() {
  std::vector<std::vector<ReplayCall>> all;
  const auto add = [&](std::string_view name, std::vector<int> node_of, bool straight) {
    std::vector<std::uint64_t> bytes;
    for (std::size_t rank = 0; rank < node_of.size(); ++rank) bytes.push_back(5 + 3 * rank % 7);
    const ReplayCall call = make_node_shared_call(
        *find_algorithm(name), packed_shape(NodeMap(std::move(node_of)), bytes, 1, 1), straight);
    all.push_back({call, call});
  };
  add("smp-direct", {0, 0, 0}, true);
  for (const bool straight : {true, false}) {
    add("smp-ring", {0, 0, 1, 1}, straight);
    add("smp-ring", {0, 1, 2, 0, 1, 0}, straight);
    add("smp-recursive-doubling", {0, 0, 0, 1}, straight);
  }
  add("smp-bruck", {0, 0, 1, 2, 2}, false);
  return all;
}

bool caught(const std::vector<ReplayCall>& calls, std::initializer_list<Fault> faults) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    for (const Violation& violation : replay(calls, {.seed = seed, .slots = 2})) {
      if (std::ranges::find(faults, violation.fault) != faults.end()) return true;
    }
  }
  return false;
}

/// Drops steps that `applies` to, one at a time, from the second call (or from both).
template <class Applies>
void expect_drop_caught(const Applies& applies, bool in_both, std::initializer_list<Fault> faults) {
  int mutants = 0;
  for (const std::vector<ReplayCall>& correct : correct_sequences()) {
    const ReplayCall& last = correct.back();
    for (int rank = 0; rank < last.shape.ranks(); ++rank) {
      for (std::size_t i = 0; i < last.schedules[rank].steps.size(); ++i) {
        if (!applies(last.schedules[rank].steps[i])) continue;
        std::vector<ReplayCall> calls = correct;
        for (std::size_t call = in_both ? 0 : 1; call < calls.size(); ++call) {
          auto& steps = calls[call].schedules[rank].steps;
          steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
        }
        ++mutants;
        EXPECT_TRUE(caught(calls, faults))
            << "rank " << rank << ", step " << i << " of " << last.shape.ranks() << " ranks";
      }
    }
  }
  EXPECT_GT(mutants, 0) << "the mutation applied nowhere";
}

TEST(NodeSharedMutation, CorrectSequencesHaveNoViolation) {
  for (const auto& calls : correct_sequences()) {
    for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
      const auto violations = replay(calls, {.seed = seed, .slots = 2});
      ASSERT_TRUE(violations.empty()) << "seed " << seed << sentences(violations);
    }
  }
}

TEST(NodeSharedMutation, ARankThatDoesNotWaitForEveryEntry) {
  expect_drop_caught(
      [](const Step& step) { return step.kind == StepKind::AwaitLocal && step.stage == 1; }, false,
      {Fault::OverwrittenInUse});
}

TEST(NodeSharedMutation, ARankThatDoesNotWaitForEveryBlock) {
  expect_drop_caught(
      [](const Step& step) { return step.kind == StepKind::AwaitLocal && step.stage == 2; }, false,
      {Fault::MissingBytes, Fault::ReadBeforeArrival, Fault::SourceModified});
}

TEST(NodeSharedMutation, ALeaderThatDoesNotWaitForItsPuts) {
  // The next block of a rank of its node goes where the put of the last one is still read.
  expect_drop_caught([](const Step& step) { return step.kind == StepKind::AwaitSent; }, true,
                     {Fault::SourceModified, Fault::OverwrittenInUse});
}

TEST(NodeSharedMutation, ALeaderThatSaysTooEarlyThatPeersMayPut) {
  int mutants = 0;
  for (std::vector<ReplayCall> calls : correct_sequences()) {
    for (int rank = 0; rank < calls[1].shape.ranks(); ++rank) {
      auto& steps = calls[1].schedules[rank].steps;
      const auto stamp = std::ranges::find(steps, StepKind::Stamp, &Step::kind);
      const bool is_told = std::ranges::any_of(
          steps, [](const Step& step) { return step.to == Memory::Receive && step.peer >= 0; });
      const bool waits = std::any_of(
          steps.begin(), stamp, [](const Step& step) { return step.kind == StepKind::AwaitLocal; });
      if (stamp == steps.end() || !is_told || !waits) continue;
      std::vector<ReplayCall> mutant = calls;
      auto& changed = mutant[1].schedules[rank].steps;
      // Behind its own publishing, so that the ranks of its node can go on.
      std::rotate(changed.begin() + 1, changed.begin() + (stamp - steps.begin()),
                  changed.begin() + (stamp - steps.begin()) + 1);
      ++mutants;
      EXPECT_TRUE(caught(mutant, {Fault::OverwrittenInUse})) << "rank " << rank;
    }
  }
  EXPECT_GT(mutants, 0);
}

}  // namespace
}  // namespace allrail::schedule::testing
