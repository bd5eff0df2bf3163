#include <algorithm>

#include <gtest/gtest.h>

#include "coll/schedule/lower.hpp"
#include "coll/schedule/replay.hpp"
#include "tests/property/schedule/random_shape.hpp"

// Small blocks into a receive buffer that the ranks of the only node share, copied there by one of
// them: right whatever the interleaving and whichever rank it is. Then schedules are broken, and
// the checker must find it.
namespace allrail::schedule::testing {
namespace {

ReplayCall make_call(const Shape& shape) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    schedules.push_back(lower_node_shared_once(shape, rank));
  }
  return {shape, std::move(schedules), true};
}

/// The other way into the same buffer, which calls may follow by turns.
ReplayCall make_call_by_all(const Shape& shape) {
  return make_node_shared_call(*coll::allgather::find_algorithm("smp-direct"), shape, true);
}

TEST(NodeSharedOnce, SequencesOfAnyShape) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    Generator generator(seed);
    const NodeMap map = one_node(generator.number(1, 9));
    std::vector<ReplayCall> calls;
    const int count = generator.number(1, 4);
    for (int call = 0; call < count; ++call) {
      const int most_bytes = generator.number(0, 1) == 0 ? kLineBytes : 100;
      const Shape shape = random_shape(generator, map, 1, 1, most_bytes);
      calls.push_back(generator.number(0, 3) == 0 ? make_call_by_all(shape) : make_call(shape));
    }
    const auto violations = replay(calls, {.seed = seed, .slots = generator.number(1, 3)});
    ASSERT_TRUE(violations.empty()) << "seed " << seed << sentences(violations);
  }
}

TEST(NodeSharedOnce, EveryRankWritesItsBlockOnceAndWaitsForEveryOther) {
  for (const std::uint64_t bytes : {kLineBytes, kLineBytes + 1}) {
    const Shape shape = uniform_shape(one_node(4), bytes, 1, 1);
    for (int rank = 0; rank < 4; ++rank) {
      const Schedule schedule = lower_node_shared_once(shape, rank);
      const auto kinds = [&](StepKind kind) {
        return std::ranges::count(schedule.steps, kind, &Step::kind);
      };
      EXPECT_EQ(kinds(StepKind::Copy), 1);
      EXPECT_EQ(kinds(StepKind::Publish), 1);
      EXPECT_EQ(kinds(StepKind::AwaitLocal), 3);
      EXPECT_EQ(schedule.steps.back().kind, StepKind::Once);
      EXPECT_EQ(schedule.once, lower_node_shared_once(shape, 0).once) << "any rank may make them";
      // Blocks that lie beside each other are one copy; lines do not.
      EXPECT_EQ(schedule.once.size(), bytes == kLineBytes ? 4U : 1U);
      EXPECT_EQ(schedule.slot_bytes, bytes == kLineBytes ? 0U : 4 * bytes);
    }
  }
}

TEST(NodeSharedOnce, OneRankCopiesItsBlockAndOtherNodesAreRefused) {
  const Schedule alone = lower_node_shared_once(uniform_shape(one_node(1), 8, 1, 1), 0);
  EXPECT_EQ(alone.steps.size(), 1U);
  EXPECT_EQ(alone.stages, 0U);
  EXPECT_THROW(lower_node_shared_once(uniform_shape(NodeMap({0, 1}), 8, 1, 1), 0),
               std::invalid_argument);
}

/// Whether one of the faults shows in these calls for some interleaving.
bool is_caught(const std::vector<ReplayCall>& calls, std::initializer_list<Fault> faults) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    for (const auto& violation : replay(calls, {.seed = seed, .slots = 2})) {
      if (std::ranges::find(faults, violation.fault) != faults.end()) return true;
    }
  }
  return false;
}

/// Two calls; `change` breaks the steps of one rank in the second.
template <class Change>
void expect_caught(const Change& change, std::initializer_list<Fault> faults) {
  for (const std::uint64_t bytes : {std::uint64_t{8}, kLineBytes + 8}) {
    const ReplayCall correct = make_call(uniform_shape(one_node(3), bytes, 1, 1));
    ASSERT_FALSE(is_caught({correct, correct}, faults));
    for (int rank = 0; rank < 3; ++rank) {
      ReplayCall broken = correct;
      change(broken.schedules[rank]);
      EXPECT_TRUE(is_caught({correct, broken}, faults)) << "rank " << rank << ", " << bytes;
    }
  }
}

TEST(NodeSharedOnceMutation, ARankThatDoesNotWaitForEveryEntry) {
  expect_caught(
      [](Schedule& schedule) {
        schedule.steps.erase(std::ranges::find(schedule.steps, StepKind::AwaitLocal, &Step::kind));
      },
      {Fault::OverwrittenInUse, Fault::ReadBeforeArrival});
}

TEST(NodeSharedOnceMutation, ARankThatDoesNotWaitForTheCopies) {
  expect_caught(
      [](Schedule& schedule) {
        schedule.steps.erase(std::ranges::find(schedule.steps, StepKind::Once, &Step::kind));
      },
      {Fault::MissingBytes});
}

TEST(NodeSharedOnceMutation, AFlagBeforeItsBlock) {
  expect_caught([](Schedule& schedule) { std::swap(schedule.steps[0], schedule.steps[1]); },
                {Fault::ReadBeforeArrival});
}

TEST(NodeSharedOnceMutation, ACopyTooFew) {
  expect_caught([](Schedule& schedule) { schedule.once.pop_back(); }, {Fault::MissingBytes});
}

}  // namespace
}  // namespace allrail::schedule::testing
