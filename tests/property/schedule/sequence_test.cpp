#include <gtest/gtest.h>

#include "coll/allgather/allgather.hpp"
#include "coll/schedule/replay.hpp"
#include "tests/property/schedule/random_shape.hpp"

// Sequences of calls over a ring of slots: with the done rule nothing is overwritten while in use,
// and without it the checker finds that it is.
namespace allrail::schedule::testing {
namespace {

using coll::allgather::Algorithm;
using coll::allgather::algorithms;

TEST(Sequence, MixedCallsOverARingOfSlotsDoNotMeet) {
  for (std::uint64_t seed = 1; seed <= 1500; seed += kOneOf) {
    Generator generator(seed);
    const NodeMap map = random_map(generator, generator.number(1, 12));
    std::vector<ReplayCall> calls;
    const int count = generator.number(2, 4);
    std::string names;
    for (int call = 0; call < count; ++call) {
      const int last = static_cast<int>(algorithms().size()) - 1;
      const Algorithm& algorithm = algorithms()[generator.number(0, last)];
      const int largest = generator.number(0, 3) == 0 ? 0 : generator.number(1, 60);
      const int ports = generator.number(1, 4);
      const int leaders = generator.number(1, 4);
      const bool zero_copy =
          algorithm.zero_copy && map.nodes() == map.ranks() && generator.number(0, 1) == 1;
      calls.push_back(
          make_call(algorithm, random_shape(generator, map, ports, leaders, largest), zero_copy));
      names += std::string(algorithm.name) + " ";
    }
    const ReplayOptions options{.seed = seed, .slots = generator.number(1, 3)};
    const auto violations = replay(calls, options);
    ASSERT_TRUE(violations.empty())
        << "seed " << seed << ", " << map.ranks() << " ranks, " << options.slots << " slots, "
        << names << sentences(violations);
  }
}

std::vector<ReplayCall> same_calls(const Algorithm& algorithm, int count) {
  const Shape shape = uniform_shape(NodeMap({0, 0, 1, 1, 2, 2}), 40, 1, 2);
  return std::vector<ReplayCall>(count, make_call(algorithm, shape));
}

bool overwrites(const std::vector<ReplayCall>& calls, int slots, bool done_rule, int step = 1) {
  for (std::uint64_t seed = 1; seed <= 300; seed += step) {
    for (const Violation& violation :
         replay(calls, {.seed = seed, .slots = slots, .done_rule = done_rule})) {
      if (violation.fault == Fault::OverwrittenInUse) {
        return true;
      }
    }
  }
  return false;
}

TEST(Sequence, WithoutTheDoneRuleOneSlotIsOverwrittenInUse) {
  for (const Algorithm& algorithm : algorithms()) {
    EXPECT_TRUE(overwrites(same_calls(algorithm, 2), 1, false)) << algorithm.name;
    EXPECT_FALSE(overwrites(same_calls(algorithm, 2), 1, true, kOneOf)) << algorithm.name;
  }
}

TEST(Sequence, AChainOfAllgathersOverTwoSlotsNeedsNoWaiting) {
  // Whoever ends call c has heard from every rank in call c, and so that every rank ended call c
  // - 1.
  for (const Algorithm& algorithm : algorithms()) {
    EXPECT_FALSE(overwrites(same_calls(algorithm, 4), 2, false, kOneOf)) << algorithm.name;
  }
}

}  // namespace
}  // namespace allrail::schedule::testing
