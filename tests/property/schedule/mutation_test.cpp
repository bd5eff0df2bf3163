#include <algorithm>
#include <functional>
#include <initializer_list>

#include <gtest/gtest.h>

#include "coll/allgather/allgather.hpp"
#include "coll/schedule/replay.hpp"
#include "tests/property/schedule/random_shape.hpp"

// The checker must be able to fail. Every test breaks correct schedules in one way, at every step
// where that way applies, one at a time, and asks that some interleaving shows the right kind of
// violation.
namespace allrail::schedule::testing {
namespace {

using coll::allgather::find_algorithm;

constexpr std::uint64_t kSeeds = 300;  // interleavings tried before a mutant counts as missed

/// Uneven blocks, none of them empty, so that every step carries bytes that matter.
Shape mutable_shape(std::vector<int> node_of, int ports, int leaders) {
  std::vector<std::uint64_t> bytes;
  for (std::size_t rank = 0; rank < node_of.size(); ++rank) {
    bytes.push_back(9 + 13 * rank % 7);
  }
  return packed_shape(NodeMap(std::move(node_of)), std::move(bytes), ports, leaders);
}

std::vector<ReplayCall> correct_calls() {
  const auto call = [](std::string_view name, std::vector<int> node_of, int ports, int leaders) {
    return make_call(*find_algorithm(name), mutable_shape(std::move(node_of), ports, leaders));
  };
  return {
      call("direct", {0, 0, 1, 1, 2}, 2, 1),
      call("bruck", {0, 1, 0, 1, 2, 2}, 2, 1),
      call("recursive-doubling", {0, 1, 2, 3, 4, 5}, 1, 1),
      call("ring", {0, 1, 2, 0, 1, 2, 1}, 3, 1),
      call("smp-gather-broadcast", {0, 0, 1, 1, 2, 2, 3}, 1, 1),
      call("smp-direct-gather-broadcast", {0, 1, 1, 2, 3, 3, 4}, 2, 1),
      call("smp-direct", {0, 0, 0, 1, 1, 1, 2, 2}, 1, 2),
      call("smp-bruck", {0, 1, 2, 0, 1, 2, 0, 1}, 1, 2),
      call("smp-recursive-doubling", {0, 0, 1, 1, 2, 2, 3, 3}, 1, 1),
      call("smp-ring", {0, 0, 1, 1, 2, 2, 2}, 2, 2),
      call("smp-multi-leader-recursive-doubling", {0, 0, 0, 0, 1, 1, 1, 1}, 1, 2),
  };
}

/// Whether some interleaving shows one of these faults.
bool caught(const ReplayCall& call, std::initializer_list<Fault> faults) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const Violation& violation : replay({&call, 1}, {.seed = seed})) {
      if (std::ranges::find(faults, violation.fault) != faults.end()) {
        return true;
      }
    }
  }
  return false;
}

/// Changes the steps of `rank` at `index`; false where it does not apply.
using Mutation = std::function<bool(ReplayCall& call, int rank, std::size_t index)>;

void expect_all_caught(const Mutation& mutation, std::initializer_list<Fault> faults) {
  int mutants = 0;
  for (const ReplayCall& correct : correct_calls()) {
    for (int rank = 0; rank < correct.shape.ranks(); ++rank) {
      for (std::size_t index = 0; index < correct.schedules[rank].steps.size(); ++index) {
        ReplayCall call = correct;
        if (!mutation(call, rank, index)) {
          continue;
        }
        ++mutants;
        EXPECT_TRUE(caught(call, faults))
            << "rank " << rank << ", step " << index << " of " << correct.shape.ranks()
            << " ranks, " << correct.shape.ports << " ports, " << correct.shape.leaders
            << " leaders";
      }
    }
  }
  EXPECT_GT(mutants, 0) << "the mutation applied nowhere";
}

std::vector<Step>& steps_of(ReplayCall& call, int rank) { return call.schedules[rank].steps; }

bool drop(ReplayCall& call, int rank, std::size_t index, StepKind kind) {
  std::vector<Step>& steps = steps_of(call, rank);
  if (steps[index].kind != kind) {
    return false;
  }
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(index));
  return true;
}

/// The await that belongs to the put at `index` of `rank`.
Step& matching_await(ReplayCall& call, int rank, std::size_t index) {
  const std::vector<Step>& steps = steps_of(call, rank);
  const Step put = steps[index];
  auto place = std::count_if(
      steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(index),
      [&](const Step& step) { return step.kind == StepKind::Put && step.peer == put.peer; });
  return *std::ranges::find_if(steps_of(call, put.peer), [&](const Step& step) {
    return step.kind == StepKind::Await && step.peer == rank && place-- == 0;
  });
}

TEST(Mutation, CorrectCallsHaveNoViolation) {
  for (const ReplayCall& call : correct_calls()) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const auto violations = replay({&call, 1}, {.seed = seed});
      ASSERT_TRUE(violations.empty()) << "seed " << seed << sentences(violations);
    }
  }
}

TEST(Mutation, DroppedPut) {
  const Mutation mutation = [](ReplayCall& call, int rank, std::size_t index) {
    return drop(call, rank, index, StepKind::Put);
  };
  expect_all_caught(mutation, {Fault::PutAwaitMismatch});
  expect_all_caught(mutation, {Fault::Deadlock, Fault::ReadBeforeArrival, Fault::HeaderMissing});
}

TEST(Mutation, DroppedAwait) {
  const Mutation mutation = [](ReplayCall& call, int rank, std::size_t index) {
    return drop(call, rank, index, StepKind::Await);
  };
  expect_all_caught(mutation, {Fault::PutAwaitMismatch});
  // Also without looking at the pairs: the bytes are read too early.
  expect_all_caught(mutation, {Fault::ReadBeforeArrival});
}

TEST(Mutation, ShiftedPut) {
  const Mutation mutation = [](ReplayCall& call, int rank, std::size_t index) {
    Step& step = steps_of(call, rank)[index];
    step.to_offset += kHeaderBytes;
    return step.kind == StepKind::Put;
  };
  expect_all_caught(mutation, {Fault::PutAwaitMismatch});
  expect_all_caught(mutation, {Fault::HeaderMissing, Fault::WrittenTwice, Fault::OutOfBounds,
                               Fault::ReadBeforeArrival});
}

TEST(Mutation, ShiftedSourceOfPut) {
  expect_all_caught(
      [](ReplayCall& call, int rank, std::size_t index) {
        Step& step = steps_of(call, rank)[index];
        step.from_offset += 8;
        return step.kind == StepKind::Put;
      },
      {Fault::HeaderMissing, Fault::OutOfBounds});
}

TEST(Mutation, ShiftedCopy) {
  expect_all_caught(
      [](ReplayCall& call, int rank, std::size_t index) {
        Step& step = steps_of(call, rank)[index];
        step.to_offset += 1;
        return step.kind == StepKind::Copy && step.to == Memory::Receive;
      },
      {Fault::WrongBytes, Fault::MissingBytes, Fault::OutOfBounds});
  expect_all_caught(
      [](ReplayCall& call, int rank, std::size_t index) {
        Step& step = steps_of(call, rank)[index];
        step.from_offset += 1;
        return step.kind == StepKind::Copy;
      },
      {Fault::WrongBytes, Fault::ReadBeforeArrival, Fault::OutOfBounds});
}

TEST(Mutation, SwappedPlacesOfTwoCopies) {
  expect_all_caught(
      [](ReplayCall& call, int rank, std::size_t index) {
        std::vector<Step>& steps = steps_of(call, rank);
        if (index + 1 >= steps.size() || steps[index].to != Memory::Receive ||
            steps[index + 1].to != Memory::Receive || steps[index].kind != StepKind::Copy ||
            steps[index + 1].kind != StepKind::Copy) {
          return false;
        }
        std::swap(steps[index].to_offset, steps[index + 1].to_offset);
        return true;
      },
      {Fault::WrongBytes, Fault::WrittenTwice, Fault::OutOfBounds});
}

TEST(Mutation, CopyBeforeItsAwait) {
  expect_all_caught(
      [](ReplayCall& call, int rank, std::size_t index) {
        // A copy out of slot memory moves in front of the nearest wait before it.
        std::vector<Step>& steps = steps_of(call, rank);
        if (steps[index].kind != StepKind::Copy || steps[index].from != Memory::Slot) {
          return false;
        }
        const auto covers = [&](const Step& wait) {
          return wait.kind == StepKind::Await && wait.to_offset <= steps[index].from_offset &&
                 steps[index].from_offset < wait.to_offset + wait.bytes;
        };
        const auto wait =
            std::find_if(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(index), covers);
        if (wait == steps.begin() + static_cast<std::ptrdiff_t>(index)) {
          return false;
        }
        std::rotate(wait, steps.begin() + static_cast<std::ptrdiff_t>(index),
                    steps.begin() + static_cast<std::ptrdiff_t>(index) + 1);
        return true;
      },
      {Fault::ReadBeforeArrival});
}

TEST(Mutation, ShortenedPut) {
  const Mutation put_only = [](ReplayCall& call, int rank, std::size_t index) {
    Step& step = steps_of(call, rank)[index];
    step.bytes -= 1;
    return step.kind == StepKind::Put;
  };
  expect_all_caught(put_only, {Fault::PutAwaitMismatch});
  // Both sides agree on too few bytes.
  expect_all_caught(
      [](ReplayCall& call, int rank, std::size_t index) {
        Step& step = steps_of(call, rank)[index];
        if (step.kind != StepKind::Put) {
          return false;
        }
        matching_await(call, rank, index).bytes -= 1;
        step.bytes -= 1;
        return true;
      },
      {Fault::ReadBeforeArrival});
}

TEST(Mutation, RepeatedPut) {
  expect_all_caught(
      [](ReplayCall& call, int rank, std::size_t index) {
        std::vector<Step>& steps = steps_of(call, rank);
        const Step put = steps[index];
        if (put.kind != StepKind::Put) {
          return false;
        }
        Step& await = matching_await(call, rank, index);
        std::vector<Step>& peer_steps = steps_of(call, put.peer);
        peer_steps.insert(peer_steps.begin() + (&await - peer_steps.data()), Step(await));
        steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(index), put);
        return true;
      },
      {Fault::WrittenTwice});
}

TEST(Mutation, DroppedStamp) {
  expect_all_caught([](ReplayCall& call, int rank,
                       std::size_t index) { return drop(call, rank, index, StepKind::Stamp); },
                    {Fault::HeaderMissing});
}

TEST(Mutation, DroppedCopy) {
  expect_all_caught(
      [](ReplayCall& call, int rank, std::size_t index) {
        return steps_of(call, rank)[index].to == Memory::Receive &&
               drop(call, rank, index, StepKind::Copy);
      },
      {Fault::MissingBytes});
  expect_all_caught(
      [](ReplayCall& call, int rank, std::size_t index) {
        return steps_of(call, rank)[index].to == Memory::Slot &&
               drop(call, rank, index, StepKind::Copy);
      },
      {Fault::ReadBeforeArrival});
}

TEST(Mutation, DroppedLastPublish) {
  // An earlier publish may be missing without harm: the next one covers it.
  expect_all_caught(
      [](ReplayCall& call, int rank, std::size_t index) {
        const std::vector<Step>& steps = steps_of(call, rank);
        const bool last =
            std::none_of(steps.begin() + static_cast<std::ptrdiff_t>(index) + 1, steps.end(),
                         [](const Step& step) { return step.kind == StepKind::Publish; });
        return last && drop(call, rank, index, StepKind::Publish);
      },
      {Fault::FlagNeverRaised});
}

TEST(Mutation, PublishBeforeTheBytesAreThere) {
  expect_all_caught(
      [](ReplayCall& call, int rank, std::size_t index) {
        std::vector<Step>& steps = steps_of(call, rank);
        if (index == 0 || steps[index].kind != StepKind::Publish) {
          return false;
        }
        std::swap(steps[index - 1], steps[index]);
        return true;
      },
      {Fault::ReadBeforeArrival});
}

TEST(Mutation, PublishTwice) {
  expect_all_caught(
      [](ReplayCall& call, int rank, std::size_t index) {
        std::vector<Step>& steps = steps_of(call, rank);
        const Step step = steps[index];
        steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(index), step);
        return step.kind == StepKind::Publish;
      },
      {Fault::FlagNotRising});
}

TEST(Mutation, DroppedLocalAwait) {
  expect_all_caught([](ReplayCall& call, int rank,
                       std::size_t index) { return drop(call, rank, index, StepKind::AwaitLocal); },
                    {Fault::ReadBeforeArrival, Fault::SourceModified});
}

TEST(Mutation, PeersThatDoNotExist) {
  expect_all_caught(
      [](ReplayCall& call, int rank, std::size_t index) {
        Step& step = steps_of(call, rank)[index];
        const bool applies = step.peer >= 0;
        step.peer = call.shape.ranks();
        return applies;
      },
      {Fault::NoSuchPeer});
}

TEST(Mutation, HeaderOffsetsWhereNoHeaderLies) {
  int mutants = 0;
  for (const ReplayCall& correct : correct_calls()) {
    for (int rank = 0; rank < correct.shape.ranks(); ++rank) {
      for (std::size_t i = 0; i < correct.schedules[rank].header_offsets.size(); ++i) {
        for (const std::uint64_t shift : {std::uint64_t{8}, kHeaderBytes, std::uint64_t{1} << 40}) {
          ReplayCall call = correct;
          call.schedules[rank].header_offsets[i] += shift;
          ++mutants;
          EXPECT_TRUE(caught(call, {Fault::HeaderMissing}))
              << "rank " << rank << ", header " << i << ", shifted by " << shift;
        }
      }
    }
  }
  EXPECT_GT(mutants, 0);
}

TEST(Mutation, HeaderOffsetsThatNothingWasAwaitedFor) {
  // Without its last await a leader looks before the last regions are here.
  const Mutation mutation = [](ReplayCall& call, int rank, std::size_t index) {
    std::vector<Step>& steps = steps_of(call, rank);
    if (call.schedules[rank].header_offsets.empty() || steps[index].kind != StepKind::Await) {
      return false;
    }
    // Only the looking is of interest: nobody copies what has not arrived.
    steps.erase(std::remove_if(steps.begin() + static_cast<std::ptrdiff_t>(index), steps.end(),
                               [](const Step& step) { return step.kind != StepKind::Put; }),
                steps.end());
    return true;
  };
  expect_all_caught(mutation, {Fault::HeaderMissing});
}

TEST(Mutation, EverybodyAwaitsBeforeItPuts) {
  ReplayCall call = make_call(*find_algorithm("ring"), mutable_shape({0, 1, 2, 3, 4}, 1, 1));
  for (Schedule& schedule : call.schedules) {
    const auto put = std::ranges::find(schedule.steps, StepKind::Put, &Step::kind);
    const auto await = std::ranges::find(schedule.steps, StepKind::Await, &Step::kind);
    std::iter_swap(put, await);
  }
  EXPECT_TRUE(caught(call, {Fault::Deadlock}));
}

TEST(Mutation, SourceRewrittenInFlight) {
  // Rank 0 puts its region and then copies over it.
  ReplayCall call = make_call(*find_algorithm("direct"), mutable_shape({0, 1}, 1, 1));
  std::vector<Step>& steps = call.schedules[0].steps;
  const auto put = std::ranges::find(steps, StepKind::Put, &Step::kind);
  const Step again = *std::ranges::find(steps, StepKind::Copy, &Step::kind);
  Step other = again;
  other.from_offset = 1;
  other.bytes -= 1;
  steps.insert(put + 1, other);
  EXPECT_TRUE(caught(call, {Fault::SourceModified}));
}

}  // namespace
}  // namespace allrail::schedule::testing
