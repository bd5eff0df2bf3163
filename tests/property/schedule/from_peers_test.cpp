#include <algorithm>
#include <initializer_list>

#include <gtest/gtest.h>

#include "coll/schedule/lower.hpp"
#include "coll/schedule/replay.hpp"
#include "tests/property/schedule/random_shape.hpp"

// Calls on one node in which every rank reads the blocks of the others where they lie: the bytes
// are right whatever the interleaving, and nobody reads what is not offered, or not any more. Then
// schedules are broken, and the checker must find it.
namespace allrail::schedule::testing {
namespace {

constexpr std::initializer_list<Memory> kSources{Memory::Send, Memory::Receive};

/// `source_of` says of a rank where the others find its block.
template <class SourceOf>
ReplayCall make_from_peers_call(const Shape& shape, const SourceOf& source_of) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    schedules.push_back(lower_from_peers(shape, rank, source_of(rank)));
  }
  return {shape, std::move(schedules)};
}

TEST(FromPeers, SequencesOfAnyShape) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    Generator generator(seed);
    const NodeMap map = one_node(generator.number(1, 9));
    std::vector<ReplayCall> calls;
    const int count = generator.number(1, 4);
    for (int call = 0; call < count; ++call) {
      // Each rank says for itself where its block is.
      calls.push_back(make_from_peers_call(random_shape(generator, map, 1, 1, 40), [&](int) {
        return generator.number(0, 1) == 0 ? Memory::Send : Memory::Receive;
      }));
    }
    const auto violations = replay(calls, {.seed = seed, .slots = generator.number(1, 3)});
    ASSERT_TRUE(violations.empty()) << "seed " << seed << sentences(violations);
  }
}

TEST(FromPeers, EveryByteIsCopiedOnceAndNothingGoesThroughTheSlot) {
  const Shape shape = packed_shape(one_node(4), {7, 0, 5, 9}, 1, 1);
  for (const Memory source : kSources) {
    for (int rank = 0; rank < 4; ++rank) {
      const Schedule schedule = lower_from_peers(shape, rank, source);
      EXPECT_EQ(schedule.slot_bytes, 0U);
      std::uint64_t bytes = 0;
      for (const Step& step : schedule.steps) {
        if (step.kind != StepKind::Copy && step.kind != StepKind::Read) continue;
        EXPECT_EQ(step.to, Memory::Receive);
        EXPECT_GT(step.bytes, 0U);
        bytes += step.bytes;
      }
      EXPECT_EQ(bytes, 21U) << "rank " << rank;
    }
  }
}

TEST(FromPeers, IsForOneNodeOnly) {
  EXPECT_THROW(lower_from_peers(uniform_shape(NodeMap({0, 1}), 8, 1, 1), 0, Memory::Send),
               std::invalid_argument);
}

// ---- what the checker must find ----

std::vector<std::vector<ReplayCall>> correct_sequences() {
  std::vector<std::vector<ReplayCall>> all;
  for (const int ranks : {2, 3, 4}) {
    for (const Memory source : kSources) {
      std::vector<std::uint64_t> bytes;
      for (int rank = 0; rank < ranks; ++rank) bytes.push_back(5 + 3 * rank % 7);
      const ReplayCall call = make_from_peers_call(packed_shape(one_node(ranks), bytes, 1, 1),
                                                   [source](int) { return source; });
      all.push_back({call, call});
    }
  }
  return all;
}

bool caught(const std::vector<ReplayCall>& calls, std::initializer_list<Fault> faults) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    for (const Violation& violation : replay(calls, {.seed = seed, .slots = 2})) {
      if (std::ranges::find(faults, violation.fault) != faults.end()) return true;
    }
  }
  return false;
}

/// Changes the second call at one step at a time; `change` says whether it applies there.
template <class Change>
void expect_caught(const Change& change, std::initializer_list<Fault> faults) {
  int mutants = 0;
  for (const std::vector<ReplayCall>& correct : correct_sequences()) {
    for (int rank = 0; rank < correct[1].shape.ranks(); ++rank) {
      for (std::size_t i = 0; i < correct[1].schedules[rank].steps.size(); ++i) {
        std::vector<ReplayCall> calls = correct;
        if (!change(calls[1].schedules[rank].steps, i)) continue;
        ++mutants;
        EXPECT_TRUE(caught(calls, faults))
            << "rank " << rank << ", step " << i << " of " << correct[1].shape.ranks() << " ranks";
      }
    }
  }
  EXPECT_GT(mutants, 0) << "the mutation applied nowhere";
}

using Steps = std::vector<Step>;

/// Drops the steps that `applies` to.
template <class Applies>
void expect_drop_caught(const Applies& applies, std::initializer_list<Fault> faults) {
  expect_caught(
      [&](Steps& steps, std::size_t i) {
        if (!applies(steps[i])) return false;
        steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
        return true;
      },
      faults);
}

TEST(FromPeersMutation, CorrectSequencesHaveNoViolation) {
  for (const auto& calls : correct_sequences()) {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
      const auto violations = replay(calls, {.seed = seed, .slots = 2});
      ASSERT_TRUE(violations.empty()) << "seed " << seed << sentences(violations);
    }
  }
}

TEST(FromPeersMutation, ReadingWhatIsNotOfferedYet) {
  expect_drop_caught(
      [](const Step& step) { return step.kind == StepKind::AwaitLocal && step.stage == 1; },
      {Fault::ReadBeforeArrival});
}

TEST(FromPeersMutation, ReturningWhileOthersRead) {
  expect_drop_caught(
      [](const Step& step) { return step.kind == StepKind::AwaitLocal && step.stage == 2; },
      {Fault::OwnerReturned});
}

TEST(FromPeersMutation, SayingTooEarlyThatAllIsRead) {
  expect_caught(
      [](Steps& steps, std::size_t i) {
        if (i == 0 || steps[i].kind != StepKind::Publish || steps[i - 1].kind != StepKind::Read) {
          return false;
        }
        std::swap(steps[i], steps[i - 1]);
        return true;
      },
      {Fault::OwnerReturned});
}

TEST(FromPeersMutation, NeverOffering) {
  expect_drop_caught([](const Step& step) { return step.kind == StepKind::Offer; },
                     {Fault::FlagNeverRaised, Fault::ReadBeforeArrival});
}

TEST(FromPeersMutation, OfferingWhatIsNotThereYet) {
  // A block that the others find in the receive buffer has to be copied there first.
  expect_caught(
      [](Steps& steps, std::size_t i) {
        if (steps[i].kind != StepKind::Offer || steps[i].from != Memory::Receive) return false;
        std::swap(steps[i], steps[i - 1]);
        return true;
      },
      {Fault::ReadBeforeArrival});
}

TEST(FromPeersMutation, AReadThatIsMissingOrGoesWrong) {
  expect_drop_caught([](const Step& step) { return step.kind == StepKind::Read; },
                     {Fault::MissingBytes});
  const auto is_read = [](const Step& step) { return step.kind == StepKind::Read; };
  expect_caught(
      [&](Steps& steps, std::size_t i) { return is_read(steps[i]) && (++steps[i].bytes, true); },
      {Fault::OutOfBounds});
  expect_caught(
      [&](Steps& steps, std::size_t i) {
        return is_read(steps[i]) && (--steps[i].bytes, ++steps[i].from_offset, true);
      },
      {Fault::WrongBytes});
  expect_caught(
      [&](Steps& steps, std::size_t i) { return is_read(steps[i]) && (steps[i].peer = 9, true); },
      {Fault::NoSuchPeer});
}

}  // namespace
}  // namespace allrail::schedule::testing
