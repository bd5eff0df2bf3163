#include <gtest/gtest.h>

#include "coll/schedule/lower.hpp"
#include "coll/schedule/replay.hpp"
#include "tests/property/schedule/random_shape.hpp"

// Small blocks in the lines of the flags: right whatever the interleaving, one line for each rank.
// Then schedules are broken, and the checker must find it.
namespace allrail::schedule::testing {
namespace {

ReplayCall make_call(const Shape& shape) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    schedules.push_back(lower_in_lines(shape, rank));
  }
  return {shape, std::move(schedules)};
}

TEST(InLines, SequencesOfAnyShape) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    Generator generator(seed);
    const NodeMap map = one_node(generator.number(1, 9));
    std::vector<ReplayCall> calls;
    const int count = generator.number(1, 4);
    for (int call = 0; call < count; ++call) {
      calls.push_back(make_call(random_shape(generator, map, 1, 1, kLineBytes)));
    }
    const auto violations = replay(calls, {.seed = seed, .slots = generator.number(1, 3)});
    ASSERT_TRUE(violations.empty()) << "seed " << seed << sentences(violations);
  }
}

TEST(InLines, OneLineForEachRank) {
  const Shape shape = packed_shape(one_node(4), {40, 0, 8, 1}, 1, 1);
  for (int rank = 0; rank < 4; ++rank) {
    const Schedule schedule = lower_in_lines(shape, rank);
    EXPECT_EQ(schedule.slot_bytes, 0U);
    int written = 0;
    int read = 0;
    for (const Step& step : schedule.steps) {
      if (step.to == Memory::Lines && step.kind == StepKind::Copy) ++written;
      if (step.from == Memory::Lines && step.kind == StepKind::Copy) ++read;
    }
    EXPECT_EQ(written, rank == 1 ? 0 : 1);
    EXPECT_EQ(read, rank == 1 ? 3 : 2);
  }
}

TEST(InLines, LargerBlocksAndOtherNodesAreRefused) {
  EXPECT_THROW(lower_in_lines(uniform_shape(one_node(2), kLineBytes + 1, 1, 1), 0),
               std::invalid_argument);
  EXPECT_THROW(lower_in_lines(uniform_shape(NodeMap({0, 1}), 8, 1, 1), 0), std::invalid_argument);
}

/// Whether `fault` shows in two calls over one ring of `slots` for some interleaving.
bool is_caught(const std::vector<ReplayCall>& calls, Fault fault, bool done_rule = true) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    for (const auto& violation :
         replay(calls, {.seed = seed, .slots = 1, .done_rule = done_rule})) {
      if (violation.fault == fault) return true;
    }
  }
  return false;
}

TEST(InLinesMutation, WithoutTheDoneRuleLinesAreOverwritten) {
  const ReplayCall call = make_call(uniform_shape(one_node(3), 8, 1, 1));
  EXPECT_TRUE(is_caught({call, call, call}, Fault::OverwrittenInUse, false) ||
              is_caught({call, call, call}, Fault::ReadBeforeArrival, false));
}

TEST(InLinesMutation, AFlagBeforeItsBytesAndBytesBeforeTheirFlag) {
  const ReplayCall correct = make_call(uniform_shape(one_node(3), 8, 1, 1));
  ReplayCall early = correct;
  std::swap(early.schedules[0].steps[0], early.schedules[0].steps[1]);
  EXPECT_TRUE(is_caught({early}, Fault::ReadBeforeArrival));
  ReplayCall impatient = correct;
  auto& steps = impatient.schedules[0].steps;
  std::erase_if(steps, [](const Step& step) { return step.kind == StepKind::AwaitLocal; });
  EXPECT_TRUE(is_caught({impatient}, Fault::ReadBeforeArrival));
}

TEST(InLinesMutation, MoreThanALine) {
  ReplayCall call = make_call(uniform_shape(one_node(2), 8, 1, 1));
  call.schedules[0].steps[0].to_offset += kLineBytes - 7;
  EXPECT_TRUE(is_caught({call}, Fault::OutOfBounds));
}

}  // namespace
}  // namespace allrail::schedule::testing
