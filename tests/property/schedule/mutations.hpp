#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "coll/schedule/replay.hpp"
#include "tests/property/effort.hpp"

// Ways to break a correct schedule, and whether the replay checker sees it. A test breaks the
// schedules of its collective in one way, at every step where that way applies, one at a time, and
// asks that some interleaving shows the right kind of violation.
namespace allrail::schedule::testing {

inline constexpr std::uint64_t kSeeds = 300;  // interleavings before a mutant counts as missed

struct Tested {
  std::string name;
  ReplayCall call;
};

/// Whether some interleaving shows one of these faults.
inline bool caught(const ReplayCall& call, std::initializer_list<Fault> faults) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const Violation& violation : replay({&call, 1}, {.seed = seed})) {
      if (std::ranges::find(faults, violation.fault) != faults.end()) {
        return true;
      }
    }
  }
  return false;
}

inline void expect_correct(const std::vector<Tested>& all, std::uint64_t seeds = kSeeds) {
  for (const auto& [name, call] : all) {
    for (std::uint64_t seed = 1; seed <= seeds; seed += property::kOneOf) {
      const auto violations = replay({&call, 1}, {.seed = seed});
      ASSERT_TRUE(violations.empty())
          << name << ", seed " << seed << ": " << violations.front().sentence;
    }
  }
}

/// Changes the steps of `rank` at `index`; false where it does not apply.
using Mutation = std::function<bool(ReplayCall& call, int rank, std::size_t index)>;

/// Every mutant of every call shows one of the faults, and there are some.
inline void expect_all_caught(const std::vector<Tested>& all, const Mutation& mutation,
                              std::initializer_list<Fault> faults) {
  int mutants = 0;
  property::Sample sample;
  for (const auto& [name, correct] : all) {
    for (int rank = 0; rank < correct.shape.ranks(); ++rank) {
      for (std::size_t index = 0; index < correct.schedules[rank].steps.size(); ++index) {
        ReplayCall call = correct;
        if (!mutation(call, rank, index)) {
          continue;
        }
        ++mutants;
        if (!sample.takes_next()) continue;
        EXPECT_TRUE(caught(call, faults))
            << name << ", rank " << rank << ", step " << index << " of " << correct.shape.ranks()
            << " ranks, " << correct.shape.ports << " ports, " << correct.shape.leaders
            << " leaders";
      }
    }
  }
  EXPECT_GT(mutants, 0) << "the mutation applied nowhere";
}

inline std::vector<Step>& steps_of(ReplayCall& call, int rank) {
  return call.schedules[rank].steps;
}

inline std::vector<Step>::iterator at(std::vector<Step>& steps, std::size_t index) {
  return steps.begin() + static_cast<std::ptrdiff_t>(index);
}

inline bool drop(ReplayCall& call, int rank, std::size_t index, StepKind kind) {
  std::vector<Step>& steps = steps_of(call, rank);
  if (steps[index].kind != kind) {
    return false;
  }
  steps.erase(at(steps, index));
  return true;
}

/// The mutation that leaves out steps of one kind.
inline Mutation dropping(StepKind kind) {
  return [kind](ReplayCall& call, int rank, std::size_t index) {
    return drop(call, rank, index, kind);
  };
}

inline Mutation dropping_copies_to(Memory to) {
  return [to](ReplayCall& call, int rank, std::size_t index) {
    return steps_of(call, rank)[index].to == to && drop(call, rank, index, StepKind::Copy);
  };
}

/// The await that belongs to the put at `index` of `rank`.
inline Step& matching_await(ReplayCall& call, int rank, std::size_t index) {
  std::vector<Step>& steps = steps_of(call, rank);
  const Step put = steps[index];
  auto place = std::count_if(steps.begin(), at(steps, index), [&](const Step& step) {
    return step.kind == StepKind::Put && step.peer == put.peer;
  });
  return *std::ranges::find_if(steps_of(call, put.peer), [&](const Step& step) {
    return step.kind == StepKind::Await && step.peer == rank && place-- == 0;
  });
}

inline bool shift_put(ReplayCall& call, int rank, std::size_t index) {
  Step& step = steps_of(call, rank)[index];
  step.to_offset += kHeaderBytes;
  return step.kind == StepKind::Put;
}

inline bool shift_source_of_put(ReplayCall& call, int rank, std::size_t index) {
  Step& step = steps_of(call, rank)[index];
  step.from_offset += 8;
  return step.kind == StepKind::Put;
}

inline bool shift_end_of_copy(ReplayCall& call, int rank, std::size_t index) {
  Step& step = steps_of(call, rank)[index];
  step.to_offset += 1;
  return step.kind == StepKind::Copy && step.to == Memory::Receive;
}

inline bool shift_source_of_copy(ReplayCall& call, int rank, std::size_t index) {
  Step& step = steps_of(call, rank)[index];
  step.from_offset += 1;
  return step.kind == StepKind::Copy;
}

/// Two copies into the receive buffer that follow each other.
inline bool swap_places_of_copies(ReplayCall& call, int rank, std::size_t index) {
  std::vector<Step>& steps = steps_of(call, rank);
  if (index + 1 >= steps.size() || steps[index].to != Memory::Receive ||
      steps[index + 1].to != Memory::Receive || steps[index].kind != StepKind::Copy ||
      steps[index + 1].kind != StepKind::Copy) {
    return false;
  }
  std::swap(steps[index].to_offset, steps[index + 1].to_offset);
  return true;
}

/// What reads slot memory, a copy or a put, moves in front of the await that brings it.
inline Mutation moving_before_its_await(StepKind kind) {
  return [kind](ReplayCall& call, int rank, std::size_t index) {
    std::vector<Step>& steps = steps_of(call, rank);
    if (steps[index].kind != kind || steps[index].from != Memory::Slot) {
      return false;
    }
    const auto covers = [&](const Step& wait) {
      return wait.kind == StepKind::Await && wait.to_offset <= steps[index].from_offset &&
             steps[index].from_offset < wait.to_offset + wait.bytes;
    };
    const auto wait = std::find_if(steps.begin(), at(steps, index), covers);
    if (wait == at(steps, index)) {
      return false;
    }
    std::rotate(wait, at(steps, index), at(steps, index + 1));
    return true;
  };
}

inline bool shorten_put(ReplayCall& call, int rank, std::size_t index) {
  Step& step = steps_of(call, rank)[index];
  step.bytes -= 1;
  return step.kind == StepKind::Put;
}

/// Its receiver looks for it elsewhere.
inline bool put_at_another_port(ReplayCall& call, int rank, std::size_t index) {
  Step& step = steps_of(call, rank)[index];
  ++step.port;
  return step.kind == StepKind::Put;
}

/// Both sides agree on too few bytes.
inline bool shorten_put_and_await(ReplayCall& call, int rank, std::size_t index) {
  Step& step = steps_of(call, rank)[index];
  if (step.kind != StepKind::Put) {
    return false;
  }
  matching_await(call, rank, index).bytes -= 1;
  step.bytes -= 1;
  return true;
}

inline bool repeat_put_and_await(ReplayCall& call, int rank, std::size_t index) {
  std::vector<Step>& steps = steps_of(call, rank);
  const Step put = steps[index];
  if (put.kind != StepKind::Put) {
    return false;
  }
  Step& await = matching_await(call, rank, index);
  std::vector<Step>& peer_steps = steps_of(call, put.peer);
  peer_steps.insert(peer_steps.begin() + (&await - peer_steps.data()), Step(await));
  steps.insert(at(steps, index), put);
  return true;
}

/// An earlier publish may be missing without harm: the next one covers it.
inline bool drop_last_publish(ReplayCall& call, int rank, std::size_t index) {
  std::vector<Step>& steps = steps_of(call, rank);
  const bool last = std::none_of(at(steps, index + 1), steps.end(),
                                 [](const Step& step) { return step.kind == StepKind::Publish; });
  return last && drop(call, rank, index, StepKind::Publish);
}

inline bool publish_too_early(ReplayCall& call, int rank, std::size_t index) {
  std::vector<Step>& steps = steps_of(call, rank);
  if (index == 0 || steps[index].kind != StepKind::Publish) {
    return false;
  }
  std::swap(steps[index - 1], steps[index]);
  return true;
}

inline bool publish_twice(ReplayCall& call, int rank, std::size_t index) {
  std::vector<Step>& steps = steps_of(call, rank);
  const Step step = steps[index];
  steps.insert(at(steps, index), step);
  return step.kind == StepKind::Publish;
}

inline bool ask_for_a_peer_that_is_not_there(ReplayCall& call, int rank, std::size_t index) {
  Step& step = steps_of(call, rank)[index];
  const bool applies = step.peer >= 0;
  step.peer = call.shape.ranks();
  return applies;
}

/// Without this await, and whatever would read what it brings, a rank looks for headers too early:
/// only the looking is of interest, since nobody copies what has not arrived.
inline bool look_for_headers_too_early(ReplayCall& call, int rank, std::size_t index) {
  std::vector<Step>& steps = steps_of(call, rank);
  if (call.schedules[rank].header_offsets.empty() || steps[index].kind != StepKind::Await) {
    return false;
  }
  steps.erase(std::remove_if(at(steps, index), steps.end(),
                             [](const Step& step) { return step.kind != StepKind::Put; }),
              steps.end());
  // A rank without any step does not look: it gets one that, without puts, waits for nothing.
  if (steps.empty()) steps.push_back({.kind = StepKind::AwaitSent});
  return true;
}

/// Every place where a header is looked for in the end, shifted in each of these ways.
inline void expect_header_offsets_caught(const std::vector<Tested>& all,
                                         std::initializer_list<std::uint64_t> shifts) {
  int mutants = 0;
  for (const auto& [name, correct] : all) {
    for (int rank = 0; rank < correct.shape.ranks(); ++rank) {
      for (std::size_t i = 0; i < correct.schedules[rank].header_offsets.size(); ++i) {
        for (const std::uint64_t shift : shifts) {
          ReplayCall call = correct;
          call.schedules[rank].header_offsets[i] += shift;
          ++mutants;
          EXPECT_TRUE(caught(call, {Fault::HeaderMissing}))
              << name << ", rank " << rank << ", header " << i << ", shifted by " << shift;
        }
      }
    }
  }
  EXPECT_GT(mutants, 0);
}

}  // namespace allrail::schedule::testing
