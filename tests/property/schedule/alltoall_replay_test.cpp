#include <algorithm>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "tests/property/schedule/rooted_call.hpp"

// Alltoall in all its forms: everybody ends with everybody's block for it, whatever the node map,
// the sizes and the interleaving.
namespace allrail::schedule::testing {
namespace {

using coll::alltoall::Algorithm;
using coll::alltoall::algorithms;

class AlltoallReplay : public ::testing::TestWithParam<Algorithm> {};

INSTANTIATE_TEST_SUITE_P(Algorithms, AlltoallReplay, ::testing::ValuesIn(algorithms()),
                         [](const auto& tested) {
                           std::string name(tested.param.name);
                           std::erase(name, '-');
                           return name;
                         });

void expect_right(const RootedCall& tested, std::uint64_t seed) {
  const auto violations = replay({&tested.call, 1}, {.seed = seed});
  ASSERT_TRUE(violations.empty()) << tested.name << ", " << tested.call.shape.ranks()
                                  << " ranks on " << tested.call.shape.map.nodes() << " nodes, "
                                  << tested.call.shape.ports << " ports, seed " << seed
                                  << sentences(violations);
  for (const Schedule& schedule : tested.call.schedules) {
    ASSERT_LE(schedule.slot_bytes, tested.slot_bytes) << tested.name;
  }
}

Groups random_groups(Generator& generator, int ranks) {
  Groups groups{random_map(generator, ranks), generator.number(1, 6)};
  if (generator.number(0, 1) == 0) {
    groups.grouping = random_grouping(generator, groups.map, generator.number(1, 6));
  }
  return groups;
}

std::vector<int> one_per_node(int ranks) {
  std::vector<int> node_of(ranks);
  std::iota(node_of.begin(), node_of.end(), 0);
  return node_of;
}

/// Of how many lanes each of the two leads its node's group.
int lanes_between(const Groups& groups, int rank, int peer) {
  int lanes = 0;
  for (int lane = 0; lane < groups.lanes(); ++lane) {
    const auto leader = [&](int of) {
      const int node = groups.map.node_of[of];
      return groups.map.ranks_of[node][groups.leader(node, lane)];
    };
    if (leader(rank) == rank && leader(peer) == peer) ++lanes;
  }
  return lanes;
}

TEST_P(AlltoallReplay, EveryCombinationUpToSevenRanks) {
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
          for (int kind = 0; kind < 3; ++kind) {  // empty, equal, uneven with empty ones
            if (!sample.takes_next()) continue;
            const int leaders = 1 + static_cast<int>(seed % 3);
            expect_right(make_alltoall(GetParam(), {NodeMap(node_of), leaders}, ports,
                                       [&](int from, int to) -> std::uint64_t {
                                         if (kind < 2) return kind == 0 ? 0 : 5;
                                         return (from + to) % 3 == 1 ? 0 : 7 * from + to;
                                       }),
                         ++seed);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(AlltoallReplay, SampledUpTo40Ranks) {
  for (int ranks = 8; ranks <= 40; ranks += 4 * kOneOf) {
    for (int ports = 1; ports <= 4; ++ports) {
      const std::uint64_t seed = static_cast<std::uint64_t>(ranks) * 100 + ports;
      Generator generator(seed);
      const Groups groups = random_groups(generator, ranks);
      const bool uneven = generator.number(0, 1) == 1;
      expect_right(make_alltoall(GetParam(), groups, ports,
                                 [&](int, int) -> std::uint64_t {
                                   return uneven ? generator.number(0, 12) : 6;
                                 }),
                   seed);
      if (HasFatalFailure()) return;
    }
  }
}

/// Kandalla 2009: leaders of a lane talk to each other only, and a block crosses once, with as many
/// lanes as with one.
TEST_P(AlltoallReplay, LeadersOfALaneShareWhatCrosses) {
  if (GetParam().level == Level::Flat) return;
  for (std::uint64_t seed = 1; seed <= 60; seed += kOneOf) {
    Generator generator(seed);
    const Groups groups = random_groups(generator, generator.number(2, 24));
    const auto bytes = [](int from, int to) -> std::uint64_t { return 64 * ((from + to) % 5); };
    const auto crossing = [&](const Groups& tested) {
      std::uint64_t sum = 0;
      const RootedCall made = make_alltoall(GetParam(), tested, 1, bytes);
      for (int rank = 0; rank < tested.ranks(); ++rank) {
        for (const Step& step : made.call.schedules[rank].steps) {
          if (step.kind != StepKind::Put) continue;
          EXPECT_GT(lanes_between(tested, rank, step.peer), 0) << "seed " << seed;
          sum += step.bytes - kHeaderBytes;
        }
      }
      return sum;
    };
    EXPECT_EQ(crossing(groups), crossing({groups.map})) << "seed " << seed;
  }
}

/// One message per lane from every node to every other, between the leaders of that lane, whatever
/// their groups have for each other. A rank that leads several lanes has one for each.
TEST(AlltoallMessages, NodesExchangeOneOnEveryLane) {
  const Algorithm& direct = *coll::alltoall::find_algorithm("smp-direct");
  for (std::uint64_t seed = 1; seed <= 120; seed += kOneOf) {
    Generator generator(seed);
    const Groups groups = random_groups(generator, generator.number(2, 24));
    const RootedCall made =
        make_alltoall(direct, groups, generator.number(1, 3),
                      [](int from, int to) -> std::uint64_t { return 64 * ((from + to) % 5); });
    for (int rank = 0; rank < groups.ranks(); ++rank) {
      std::vector<int> puts(groups.ranks());
      for (const Step& step : made.call.schedules[rank].steps) {
        if (step.kind == StepKind::Put) ++puts[step.peer];
      }
      for (int peer = 0; peer < groups.ranks(); ++peer) {
        const bool together = groups.map.node_of[rank] == groups.map.node_of[peer];
        EXPECT_EQ(puts[peer], together ? 0 : lanes_between(groups, rank, peer))
            << groups.lanes() << " lanes, from " << rank << " to " << peer << ", seed " << seed;
      }
    }
  }
}

/// With and without a matrix that says the same: only without one a sender takes the places of its
/// own awaits for those of its peer's.
TEST_P(AlltoallReplay, OneSizeIsAMatrixOfThatSize) {
  for (const auto& [nodes, size] : {std::pair(1, 5), {7, 1}, {4, 2}, {5, 3}, {9, 2}, {12, 1}}) {
    for (const bool uneven : {false, true}) {
      std::vector<int> node_of{0};
      for (int rank = uneven ? 0 : 1; rank < nodes * size; ++rank) node_of.push_back(rank % nodes);
      for (int ports = 1; ports <= 5; ++ports) {
        PairShape one_size;
        one_size.map = NodeMap(node_of);
        one_size.leaders = 1 + ports % 3;
        one_size.ports = ports;
        one_size.uniform_bytes = 24;
        one_size.send_offsets = one_size.receive_offsets =
            uniform_shape(one_size.map, 24, ports, 1).receive_offsets;
        PairShape matrix = one_size;
        matrix.matrix.assign(node_of.size() * node_of.size(), 24);
        const Algorithm& tested = GetParam();
        ASSERT_EQ(pairs_slot_bytes(tested.exchange, one_size, tested.level),
                  pairs_slot_bytes(tested.exchange, matrix, tested.level));
        for (int rank = 0; rank < one_size.map.ranks(); ++rank) {
          const auto with = coll::alltoall::make_schedule(tested, matrix, rank);
          const auto without = coll::alltoall::make_schedule(tested, one_size, rank);
          ASSERT_EQ(with.steps, without.steps) << nodes << " nodes, rank " << rank;
          ASSERT_EQ(with.slot_bytes, without.slot_bytes);
          ASSERT_EQ(with.header_offsets, without.header_offsets);
        }
      }
    }
  }
}

/// Where the buffers are the same, what a rank writes into its own must not be read from there any
/// more. A replay has two buffers, so this looks at the order of the steps.
TEST_P(AlltoallReplay, InPlaceNothingIsWrittenOverThatIsStillToBeRead) {
  for (std::uint64_t seed = 1; seed <= 200; seed += kOneOf) {
    Generator generator(seed);
    const int ranks = generator.number(2, 16);
    PairShape shape;
    static_cast<Groups&>(shape) =
        generator.number(0, 1) == 0 ? random_groups(generator, ranks)
                                    : Groups{uniform_shape(NodeMap(one_per_node(ranks)), 1, 1, 1)};
    shape.ports = generator.number(1, 8);
    shape.uniform_bytes = 24;
    shape.send_offsets = shape.receive_offsets = uniform_shape(shape.map, 24, 1, 1).receive_offsets;
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<bool> written(24 * static_cast<std::size_t>(ranks));
      for (const Step& step : coll::alltoall::make_schedule(GetParam(), shape, rank).steps) {
        for (std::uint64_t i = 0; i < step.bytes && step.from == Memory::Send; ++i) {
          ASSERT_FALSE(written[step.from_offset + i]) << "rank " << rank << ", seed " << seed;
        }
        for (std::uint64_t i = 0; i < step.bytes && step.to == Memory::Receive; ++i) {
          written[step.to_offset + i] = true;
        }
      }
    }
  }
}

/// One put to every rank of another node and none within the node, whose slot has its own blocks.
void expect_straight(const Schedule& schedule, const NodeMap& map, int rank) {
  std::vector<int> puts(map.ranks());
  for (const Step& step : schedule.steps) {
    if (step.kind == StepKind::Put) ++puts[step.peer];
    if (step.kind != StepKind::Put && step.kind != StepKind::Await) continue;
    EXPECT_EQ(step.to, Memory::Receive);
    EXPECT_NE(map.node_of[step.peer], map.node_of[rank]);
  }
  for (int peer = 0; peer < map.ranks(); ++peer) {
    EXPECT_EQ(puts[peer], map.node_of[peer] == map.node_of[rank] ? 0 : 1);
  }
  EXPECT_EQ(schedule.stages, map.node_size(map.node_of[rank]) > 1 ? 1U : 0U);
}

/// Where all nodes have as many ranks, nobody is sent to by two in the same turn of a step.
TEST_P(AlltoallReplay, ZeroCopyRanksOfANodeBeginWithDifferentPeers) {
  if (!GetParam().zero_copy || GetParam().level != Level::Smp) return;
  const NodeMap map({0, 0, 0, 1, 1, 1, 2, 2, 2});
  const auto size = [](int, int) -> std::uint64_t { return 9; };
  for (int ports = 1; ports <= 3; ++ports) {
    const RootedCall tested = make_alltoall(GetParam(), {map}, ports, size, true);
    for (const Schedule& schedule : tested.call.schedules) {
      std::set<std::pair<int, int>> turns;
      for (const Step& step : schedule.steps) {
        if (step.kind != StepKind::Await) continue;
        EXPECT_TRUE(turns.insert({step.round, step.port}).second) << ports << " ports";
      }
    }
  }
}

TEST_P(AlltoallReplay, ZeroCopyUpTo40Ranks) {
  const auto size = [](int, int) -> std::uint64_t { return 9; };
  if (!GetParam().zero_copy) {
    EXPECT_THROW(make_alltoall(GetParam(), {NodeMap({0, 1, 2, 3})}, 1, size, true),
                 std::invalid_argument);
    return;
  }
  for (int ranks = 1; ranks <= 40; ranks += kOneOf) {
    for (int ports = 1; ports <= 8; ++ports) {
      const std::uint64_t seed = static_cast<std::uint64_t>(ranks) * 100 + ports;
      Generator generator(seed);
      std::vector<int> node_of = one_per_node(ranks);
      if (generator.number(0, 1) == 1) std::ranges::reverse(node_of);
      const bool alone = generator.number(0, 1) == 1;
      const NodeMap map = alone ? NodeMap(node_of) : random_map(generator, ranks);
      const RootedCall tested = make_alltoall(GetParam(), {map}, ports, size, true);
      expect_right(tested, seed);
      if (HasFatalFailure()) return;
      for (int rank = 0; rank < ranks; ++rank) {
        expect_straight(tested.call.schedules[rank], map, rank);
      }
    }
  }
}

TEST_P(AlltoallReplay, SequencesOverARingOfSlotsDoNotMeet) {
  for (std::uint64_t seed = 1; seed <= 150; seed += kOneOf) {
    Generator generator(seed);
    const NodeMap map = random_map(generator, generator.number(1, 9));
    std::vector<ReplayCall> calls;
    for (int i = generator.number(2, 4); i > 0; --i) {
      const int ports = generator.number(1, 3);
      const int root = generator.number(0, map.ranks() - 1);
      const int largest = generator.number(0, 20);
      if (generator.number(0, 2) == 0) {
        auto rooted = rooted_calls(uniform_shape(map, largest, ports, 1), root);
        calls.push_back(
            std::move(rooted[generator.number(0, static_cast<int>(rooted.size()) - 1)].call));
      } else {
        const Groups groups{map, generator.number(1, 3)};
        calls.push_back(make_alltoall(GetParam(), groups, ports, [&](int, int) -> std::uint64_t {
                          return generator.number(0, largest);
                        }).call);
      }
    }
    const ReplayOptions options{.seed = seed, .slots = generator.number(1, 3)};
    const auto violations = replay(calls, options);
    ASSERT_TRUE(violations.empty()) << "seed " << seed << sentences(violations);
  }
}

}  // namespace
}  // namespace allrail::schedule::testing
