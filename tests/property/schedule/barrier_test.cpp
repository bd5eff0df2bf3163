// The barrier by what it is for: while one rank stays outside, nobody leaves.
#include "coll/barrier/barrier.hpp"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "coll/schedule/replay.hpp"
#include "tests/property/schedule/mutations.hpp"

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

/// Of nodes on which any rank may be the one that talks.
Shape random_shape(int nodes, int most_per_node, int ports, std::mt19937_64& random) {
  Shape shape = uniform_shape(random_map(nodes, most_per_node, random), 0, ports, 1);
  auto grouping = std::make_shared<Grouping>();
  grouping->lane_of.assign(shape.map.node_of.size(), 0);
  for (const auto& ranks : shape.map.ranks_of) {
    grouping->leaders.push_back(static_cast<int>(random() % ranks.size()));
  }
  shape.grouping = std::move(grouping);
  return shape;
}

std::vector<Schedule> schedules_of(const Shape& shape) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    schedules.push_back(coll::barrier::make_schedule(shape, shape.ports, rank));
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

void expect_only_leaders_signal(const Shape& shape, const std::vector<Schedule>& schedules) {
  const auto talks = [&](int rank) {
    return rank == shape.talking_rank(shape.map.node_of[static_cast<std::size_t>(rank)]);
  };
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    for (const Step& step : schedules[static_cast<std::size_t>(rank)].steps) {
      if (step.kind != StepKind::Put) continue;
      EXPECT_TRUE(talks(rank)) << rank;
      EXPECT_TRUE(talks(step.peer)) << step.peer;
    }
  }
}

TEST(Barrier, NobodyLeavesBeforeEverybodyHasEntered) {
  property::Sample sample;
  for (int nodes = 1; nodes <= 40; ++nodes) {
    for (int ports = 1; ports <= 8; ++ports) {
      if (!sample.takes_next()) continue;
      std::mt19937_64 random(static_cast<std::uint64_t>(nodes * 100 + ports));
      const Shape shape = random_shape(nodes, 3, ports, random);
      const auto schedules = schedules_of(shape);
      for (int outside = 0; outside < shape.ranks(); ++outside) {
        if (shape.ranks() == 1) continue;
        ASSERT_EQ(who_leaves(shape, schedules, outside), std::vector<int>())
            << nodes << " nodes, " << ports << " ports, rank " << outside << " outside";
      }
      ASSERT_EQ(static_cast<int>(who_leaves(shape, schedules, -1).size()), shape.ranks());
      expect_only_leaders_signal(shape, schedules);
    }
  }
}

TEST(Barrier, IsAValidScheduleInSequences) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const int nodes = 1 + static_cast<int>(random() % 9);
    const int ports = 1 + static_cast<int>(random() % 4);
    const Shape shape = random_shape(nodes, 4, ports, random);
    std::vector<ReplayCall> calls;
    for (int call = 0; call < 4; ++call) calls.emplace_back(shape, schedules_of(shape));
    const auto violations = replay(calls, {seed, 1 + static_cast<int>(random() % 3), true});
    ASSERT_TRUE(violations.empty()) << "seed " << seed << ": " << violations.front().sentence;
  }
}

/// Nodes of one rank and of more, eight with one port and nine with two: a power of ports + 1, so
/// that every node hears of every other in one way only and no signal can be done without.
std::vector<Tested> correct_barriers() {
  std::vector<Tested> all;
  for (const auto& [ports, node_of] :
       {std::pair(1, std::vector<int>{0, 1, 2, 0, 1, 3, 3, 3, 4, 5, 6, 7}),
        std::pair(2, std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 8})}) {
    const Shape shape = uniform_shape(NodeMap(node_of), 0, ports, 1);
    all.push_back({"barrier", ReplayCall(shape, schedules_of(shape))});
  }
  return all;
}

/// Whether somebody leaves while another rank is outside.
bool leaves_too_early(const ReplayCall& call) {
  for (int outside = 0; outside < call.shape.ranks(); ++outside) {
    if (!who_leaves(call.shape, call.schedules, outside).empty()) return true;
  }
  return false;
}

/// No bytes are read that could be wrong: what harm these do is that somebody leaves too early.
void expect_early_leaver(const Mutation& mutation) {
  int mutants = 0;
  for (const auto& [name, correct] : correct_barriers()) {
    ASSERT_FALSE(leaves_too_early(correct));
    for (int rank = 0; rank < correct.shape.ranks(); ++rank) {
      for (std::size_t index = 0; index < correct.schedules[rank].steps.size(); ++index) {
        ReplayCall call = correct;
        if (!mutation(call, rank, index)) continue;
        ++mutants;
        EXPECT_TRUE(leaves_too_early(call))
            << "rank " << rank << ", step " << index << " of " << call.shape.ranks() << " ranks, "
            << call.shape.ports << " ports";
      }
    }
  }
  EXPECT_GT(mutants, 0) << "the mutation applied nowhere";
}

TEST(BarrierMutation, CorrectCallsHaveNoViolation) { expect_correct(correct_barriers()); }

TEST(BarrierMutation, SignalsThatAreMissingOrGoElsewhere) {
  const auto expect_caught = [](const Mutation& mutation, std::initializer_list<Fault> faults) {
    expect_all_caught(correct_barriers(), mutation, faults);
  };
  expect_caught(dropping(StepKind::Put), {Fault::PutAwaitMismatch});
  expect_caught(dropping(StepKind::Put), {Fault::Deadlock});
  expect_caught(dropping(StepKind::Await), {Fault::PutAwaitMismatch});
  expect_caught(dropping(StepKind::Stamp), {Fault::HeaderMissing});
  expect_caught(shift_put, {Fault::PutAwaitMismatch});
  expect_caught(shift_source_of_put, {Fault::HeaderMissing});
  expect_caught(shorten_put_and_await, {Fault::HeaderMissing});
  expect_caught(repeat_put_and_await, {Fault::WrittenTwice});
  expect_caught(ask_for_a_peer_that_is_not_there, {Fault::NoSuchPeer});
  expect_caught(look_for_headers_too_early, {Fault::HeaderMissing});
  expect_caught(publish_twice, {Fault::FlagNotRising});
  expect_caught(drop_last_publish, {Fault::FlagNeverRaised});
  // Not by the length of a header: the next signal's may lie there.
  expect_header_offsets_caught(correct_barriers(), {8, std::uint64_t{1} << 40});
}

TEST(BarrierMutation, ExchangedDestinations) {
  const Mutation mutation = [](ReplayCall& call, int rank, std::size_t index) {
    std::vector<Step>& steps = steps_of(call, rank);
    if (steps[index].kind != StepKind::Put) return false;
    const auto other = std::find_if(at(steps, index + 1), steps.end(),
                                    [](const Step& step) { return step.kind == StepKind::Put; });
    if (other == steps.end()) return false;
    std::swap(steps[index].peer, other->peer);
    return true;
  };
  expect_all_caught(correct_barriers(), mutation, {Fault::PutAwaitMismatch});
}

TEST(BarrierMutation, ASignalThatNeitherSideKnowsOf) {
  expect_early_leaver([](ReplayCall& call, int rank, std::size_t index) {
    if (steps_of(call, rank)[index].kind != StepKind::Put) return false;
    const int peer = steps_of(call, rank)[index].peer;
    std::vector<Step>& peer_steps = steps_of(call, peer);
    peer_steps.erase(at(peer_steps, static_cast<std::size_t>(&matching_await(call, rank, index) -
                                                             peer_steps.data())));
    return drop(call, rank, index, StepKind::Put);
  });
}

TEST(BarrierMutation, WaitsThatAreMissingOrTooLate) {
  expect_early_leaver(dropping(StepKind::Await));
  expect_early_leaver(dropping(StepKind::AwaitLocal));
  // The signals of a round tell what the rounds before it brought: sent before these are awaited,
  // they tell too little.
  expect_early_leaver([](ReplayCall& call, int rank, std::size_t index) {
    std::vector<Step>& steps = steps_of(call, rank);
    if (index == 0 || steps[index].kind != StepKind::Put ||
        steps[index - 1].kind != StepKind::Await) {
      return false;
    }
    std::swap(steps[index - 1], steps[index]);
    return true;
  });
  // The last flag says that everybody has entered.
  expect_early_leaver([](ReplayCall& call, int rank, std::size_t index) {
    return steps_of(call, rank)[index].stage == 2 && publish_too_early(call, rank, index);
  });
}

TEST(Barrier, TakesLogRoundsOfOneHeaderPerSignal) {
  for (int nodes = 1; nodes <= 130; ++nodes) {
    for (int ports = 1; ports <= 8; ++ports) {
      int expected = 0;
      for (long long known = 1; known < nodes; known *= ports + 1) ++expected;
      EXPECT_EQ(coll::barrier::rounds(nodes, ports), expected);
      std::vector<int> node_of;
      for (int node = 0; node < nodes; ++node) node_of.push_back(node);
      const Schedule schedule = coll::barrier::make_schedule({NodeMap(node_of)}, ports, 0);
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

TEST(Barrier, AmongAPowerOfNodesThoseWhoAreSignalledSignalBack) {
  for (const auto& [nodes, ports, peers] :
       {std::tuple(16, 1, 4), std::tuple(9, 2, 4), std::tuple(64, 3, 9), std::tuple(12, 1, 6)}) {
    std::vector<int> node_of(static_cast<std::size_t>(nodes));
    std::iota(node_of.begin(), node_of.end(), 0);
    for (int rank = 0; rank < nodes; ++rank) {
      std::set<int> to, from;
      for (const Step& step : coll::barrier::make_schedule({NodeMap(node_of)}, ports, rank).steps) {
        if (step.kind == StepKind::Put) to.insert(step.peer);
        if (step.kind == StepKind::Await) from.insert(step.peer);
      }
      EXPECT_EQ(to == from, nodes != 12) << rank << " of " << nodes;
      to.merge(from);
      EXPECT_EQ(static_cast<int>(to.size()), peers) << rank << " of " << nodes;
    }
  }
}

TEST(Barrier, RefusesARankOrPortsThatDoNotFit) {
  const Groups groups{NodeMap({0, 1, 1})};
  EXPECT_NO_THROW((void)coll::barrier::make_schedule(groups, kLargestPorts, 2));
  for (const int rank : {-1, 3}) {
    EXPECT_THROW((void)coll::barrier::make_schedule(groups, 1, rank), std::invalid_argument);
  }
  for (const int ports : {0, kLargestPorts + 1}) {
    EXPECT_THROW((void)coll::barrier::make_schedule(groups, ports, 0), std::invalid_argument);
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
