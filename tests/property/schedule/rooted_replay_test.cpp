#include <gtest/gtest.h>

#include "tests/property/schedule/rooted_call.hpp"

// Gather, scatter and broadcast in all their forms: everybody ends with what is theirs, whatever
// the root, the node map, the sizes and the interleaving.
namespace allrail::schedule::testing {
namespace {

void expect_right(const RootedCall& tested, int root, std::uint64_t seed) {
  const auto violations = replay({&tested.call, 1}, {.seed = seed});
  ASSERT_TRUE(violations.empty()) << tested.name << ", root " << root << ", "
                                  << tested.call.shape.ranks() << " ranks, "
                                  << tested.call.shape.ports << " ports, seed " << seed
                                  << sentences(violations);
  for (const Schedule& schedule : tested.call.schedules) {
    ASSERT_LE(schedule.slot_bytes, tested.slot_bytes) << tested.name << ", root " << root;
  }
}

TEST(RootedReplay, EveryCombinationUpToSixRanks) {
  std::uint64_t seed = 1;
  Sample sample;
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int nodes = 1; nodes <= ranks; ++nodes) {
      for (const bool cyclic : {false, true}) {
        std::vector<int> node_of;
        for (int rank = 0; rank < ranks; ++rank) {
          node_of.push_back(cyclic ? rank % nodes : rank * nodes / ranks);
        }
        for (int root = 0; root < ranks; ++root) {
          for (const int ports : {1, 2, 3, 8}) {
            for (int kind = 0; kind < 3; ++kind) {  // empty, equal, uneven with empty ones
              if (!sample.takes_next()) continue;
              std::vector<std::uint64_t> bytes(ranks, kind == 0 ? 0 : 5);
              for (int rank = 0; kind == 2 && rank < ranks; ++rank) {
                bytes[rank] = rank % 3 == 1 ? 0 : 90 * (rank % 3) + rank;
              }
              const Shape shape = packed_shape(NodeMap(node_of), bytes, ports, 1);
              for (const RootedCall& call : rooted_calls(shape, root)) {
                expect_right(call, root, ++seed);
                if (HasFatalFailure()) return;
              }
            }
          }
        }
      }
    }
  }
}

TEST(RootedReplay, SampledUpTo64Ranks) {
  for (int ranks = 7; ranks <= 64; ranks += 3 * kOneOf) {
    for (int ports = 1; ports <= 8; ++ports) {
      const std::uint64_t seed = static_cast<std::uint64_t>(ranks) * 100 + ports;
      Generator generator(seed);
      NodeMap map = random_map(generator, ranks);
      const int root = generator.number(0, ranks - 1);
      Shape shape = random_shape(generator, std::move(map), ports, 1, 24);
      shape.switches = random_switches(generator, shape.map.nodes());
      if (generator.number(0, 1) == 0) {
        shape.grouping = random_grouping(generator, shape.map, generator.number(1, 3));
      }
      for (const RootedCall& call : rooted_calls(shape, root)) {
        expect_right(call, root, seed);
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// Straight between user buffers, every block of another node is put once, between its owner and
/// the root, and nothing is copied but on the root's node.
void expect_straight(const RootedCall& tested, int root) {
  const NodeMap& map = tested.call.shape.map;
  std::vector<int> puts(map.ranks());
  for (int rank = 0; rank < map.ranks(); ++rank) {
    const bool is_near = map.node_of[rank] == map.node_of[root];
    for (const Step& step : tested.call.schedules[rank].steps) {
      EXPECT_TRUE(step.kind != StepKind::Copy || is_near) << tested.name;
      if (step.kind == StepKind::Await || map.node_size(map.node_of[root]) == 1) {
        EXPECT_NE(step.from, Memory::Slot) << tested.name;
        EXPECT_NE(step.to, Memory::Slot) << tested.name;
      }
      if (step.kind != StepKind::Put) continue;
      EXPECT_TRUE(step.from == Memory::Send && step.to == Memory::Receive) << tested.name;
      EXPECT_TRUE(rank == root || step.peer == root) << tested.name;
      ++puts[rank == root ? step.peer : rank];
    }
  }
  for (int rank = 0; rank < map.ranks(); ++rank) {
    EXPECT_EQ(puts[rank], map.node_of[rank] == map.node_of[root] ? 0 : 1) << tested.name;
  }
}

TEST(RootedReplay, StraightBetweenUserBuffersUpTo40Ranks) {
  for (int ranks = 2; ranks <= 40; ranks += kOneOf) {
    for (int ports = 1; ports <= 8; ++ports) {
      const std::uint64_t seed = static_cast<std::uint64_t>(ranks) * 100 + ports;
      Generator generator(seed);
      std::vector<int> node_of(ranks);
      for (int rank = 0; rank < ranks; ++rank) node_of[rank] = rank;
      if (generator.number(0, 1) == 1) std::ranges::reverse(node_of);
      const bool alone = generator.number(0, 1) == 1;
      NodeMap map = alone ? NodeMap(node_of) : random_map(generator, ranks);
      Shape shape = uniform_shape(std::move(map), 9, ports, 1);
      if (!alone) shape.grouping = random_grouping(generator, shape.map, 1);
      const int root = generator.number(0, ranks - 1);
      for (const auto& algorithm : coll::gather::algorithms()) {
        if (!algorithm.zero_copy) continue;
        const RootedCall tested = make_gather(algorithm, shape, root, true);
        expect_right(tested, root, seed);
        expect_straight(tested, root);
      }
      for (const auto& algorithm : coll::scatter::algorithms()) {
        if (!algorithm.zero_copy) continue;
        const RootedCall tested = make_scatter(algorithm, shape, root, true);
        expect_right(tested, root, seed);
        expect_straight(tested, root);
      }
      if (HasFatalFailure()) return;
    }
  }
}

TEST(RootedReplay, BlocksThatOthersSendOnDoNotGoStraight) {
  const Shape shape = uniform_shape(NodeMap({0, 1, 2, 3}), 9, 1, 1);
  for (const auto& algorithm : coll::gather::algorithms()) {
    EXPECT_EQ(algorithm.zero_copy, algorithm.name == "direct" || algorithm.name == "smp-direct");
    EXPECT_TRUE(rooted_goes_straight(algorithm, shape, 9) == algorithm.zero_copy);
    EXPECT_FALSE(rooted_goes_straight(algorithm, shape, 10));
  }
  const auto& direct = *coll::gather::find_algorithm("direct");
  const Shape shared = uniform_shape(NodeMap({0, 1, 1}), 9, 1, 1);
  EXPECT_TRUE(rooted_goes_straight(direct, shared, 9));
  EXPECT_FALSE(rooted_goes_straight(direct, shared, 10));
  std::vector<int> many(66, 1);
  many.front() = 0;
  EXPECT_FALSE(rooted_goes_straight(direct, uniform_shape(NodeMap(many), 9, 1, 1), 9))
      << "65 links";
  EXPECT_FALSE(rooted_goes_straight(direct, uniform_shape(NodeMap({0}), 9, 1, 1), 9));
  EXPECT_FALSE(rooted_goes_straight(direct, packed_shape(NodeMap({0, 1, 2}), {9, 9, 10}, 1, 1), 9));
  EXPECT_THROW(rooted_zero_copy_schedule(direct, packed_shape(NodeMap({0, 1, 2}), {9, 9, 10}, 1, 1),
                                         0, 1, Direction::ToRoot),
               std::invalid_argument);
  const auto& binomial = *coll::gather::find_algorithm("binomial");
  EXPECT_THROW(rooted_zero_copy_schedule(binomial, shape, 0, 2, Direction::ToRoot),
               std::invalid_argument);
}

/// Goglin and Moreaud 2011: what comes from other nodes comes to the rank that is near the rails,
/// whatever the root.
TEST(RootedReplay, TheLeaderOfANodeTalksForIt) {
  for (std::uint64_t seed = 1; seed <= 60; seed += kOneOf) {
    Generator generator(seed);
    Shape shape = uniform_shape(random_map(generator, generator.number(2, 16)), 40, 2, 1);
    shape.grouping = random_grouping(generator, shape.map, 1);
    const int root = generator.number(0, shape.ranks() - 1);
    for (const RootedCall& tested : rooted_calls(shape, root)) {
      const bool is_over_nodes = tested.name.find("smp-") != std::string::npos ||
                                 tested.name.find("topology") != std::string::npos;
      for (int rank = 0; is_over_nodes && rank < shape.ranks(); ++rank) {
        for (const Step& step : tested.call.schedules[rank].steps) {
          if (step.kind != StepKind::Put) continue;
          const int node = shape.map.node_of[step.peer];
          EXPECT_EQ(step.peer, shape.talking_rank(node)) << tested.name << ", seed " << seed;
          EXPECT_EQ(rank, shape.talking_rank(shape.map.node_of[rank])) << tested.name;
        }
      }
    }
  }
}

/// Goglin and Moreaud 2011: the chain goes through a node at once, and comes in at its leader.
TEST(RootedReplay, AChainEntersEveryNodeOnceAtItsLeader) {
  for (std::uint64_t seed = 1; seed <= 200; seed += kOneOf) {
    Generator generator(seed);
    Shape shape = uniform_shape(random_map(generator, generator.number(1, 16)), 40, 1, 1);
    if (generator.number(0, 3) > 0) shape.grouping = random_grouping(generator, shape.map, 1);
    const int root = generator.number(0, shape.ranks() - 1);
    const RootedCall tested =
        make_broadcast(*coll::broadcast::find_algorithm("chain"), shape, root);
    std::vector<int> entered(shape.map.nodes());
    for (int rank = 0; rank < shape.ranks(); ++rank) {
      for (const Step& step : tested.call.schedules[rank].steps) {
        if (step.kind != StepKind::Put) continue;
        const int node = shape.map.node_of[step.peer];
        if (node == shape.map.node_of[rank]) continue;
        EXPECT_EQ(step.peer, shape.talking_rank(node)) << "seed " << seed;
        ++entered[node];
      }
    }
    for (int node = 0; node < shape.map.nodes(); ++node) {
      EXPECT_EQ(entered[node], node == shape.map.node_of[root] ? 0 : 1) << "seed " << seed;
    }
  }
}

TEST(RootedReplay, AChainPassesSegmentsOn) {
  for (const auto& [bytes, segment, pieces] : {std::tuple(0, 100, 1),
                                               {1, 100, 1},
                                               {100, 100, 1},
                                               {101, 100, 2},
                                               {6400, 100, 64},
                                               {6401, 100, 64},
                                               {100'000, 1, 64},
                                               {100'000, 1 << 30, 1},
                                               {0, 0, 1},
                                               {8 << 10, 0, 1},
                                               {128 << 10, 0, 4},
                                               {2 << 20, 0, 16},
                                               {64 << 20, 0, 64}}) {
    Shape shape = uniform_shape(NodeMap({0, 1, 2}), bytes, 1, 1);
    shape.segment_bytes = segment;
    const RootedCall tested = make_broadcast(*coll::broadcast::find_algorithm("chain"), shape, 0);
    const auto is_put = [](const Step& step) { return step.kind == StepKind::Put; };
    EXPECT_EQ(std::ranges::count_if(tested.call.schedules[0].steps, is_put), pieces)
        << bytes << " by " << segment;
    EXPECT_EQ(tested.call.schedules[0].rounds, pieces + 3 - 2);
  }
}

/// What a rank does with a piece of a chain over nodes.
struct PieceStep {
  char what;  // await, put, tell of it, await that word, copy it out
  std::uint32_t piece;

  friend bool operator==(const PieceStep&, const PieceStep&) = default;
};

std::vector<PieceStep> pieces_in_order(const Schedule& schedule, std::uint64_t region_bytes) {
  std::vector<PieceStep> order;
  const auto piece_at = [&](std::uint64_t offset) {
    return static_cast<std::uint32_t>(offset / region_bytes);
  };
  for (const Step& step : schedule.steps) {
    if (step.kind == StepKind::Await) order.push_back({'a', piece_at(step.to_offset)});
    if (step.kind == StepKind::Put) order.push_back({'p', piece_at(step.from_offset)});
    if (step.kind == StepKind::Copy) order.push_back({'o', piece_at(step.from_offset)});
    // Stage 1 is what a rank gives, and nobody here has anything to give.
    if (step.kind == StepKind::AwaitLocal) order.push_back({'w', step.stage - 2});
    if (step.kind == StepKind::Publish) order.push_back({'t', step.stage - 2});
  }
  return order;
}

/// Pipelined through all levels: a rank of a node copies a piece out as soon as its leader has told
/// of it, while the leader, which has told first, puts that piece on and awaits the next one.
TEST(RootedReplay, AChainOverNodesPassesEveryPieceOnInTheNodeToo) {
  constexpr std::uint64_t kPiece = 128;
  constexpr std::uint32_t kPieces = 7;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Generator generator(seed);
    Shape shape = uniform_shape(NodeMap({0, 0, 1, 1, 1, 2, 2}), kPieces * kPiece, 1, 1);
    shape.grouping = random_grouping(generator, shape.map, 1);
    shape.segment_bytes = kPiece;
    const auto& chain = *coll::broadcast::find_algorithm("smp-chain");
    const RootedCall tested = make_broadcast(chain, shape, generator.number(0, 1));
    for (int rank = 2; rank < shape.ranks(); ++rank) {
      const int node = shape.map.node_of[rank];
      const bool talks = shape.talking_rank(node) == rank;
      std::vector<PieceStep> expected;
      for (std::uint32_t piece = 0; piece < kPieces; ++piece) {
        if (!talks) {
          expected.insert(expected.end(), {{'w', piece}, {'o', piece}});
          continue;
        }
        expected.insert(expected.end(), {{'a', piece}, {'t', piece}});
        if (node == 1) expected.push_back({'p', piece});
        expected.push_back({'o', piece});
      }
      EXPECT_EQ(pieces_in_order(tested.call.schedules[rank], kPiece + kHeaderBytes), expected)
          << "rank " << rank << ", seed " << seed;
    }
  }
}

TEST(RootedReplay, ABroadcastInManyPieces) {
  for (std::uint64_t seed = 1; seed <= 40; seed += kOneOf) {
    Generator generator(seed);
    NodeMap map = random_map(generator, generator.number(2, 7));
    const int root = generator.number(0, map.ranks() - 1);
    const auto bytes = static_cast<std::uint64_t>(generator.number(30'000, 100'000));
    Shape shape = uniform_shape(std::move(map), bytes, generator.number(1, 3), 1);
    if (generator.number(0, 1) == 0) shape.grouping = random_grouping(generator, shape.map, 1);
    shape.segment_bytes = static_cast<std::uint64_t>(generator.number(0, 40'000));
    for (const auto& algorithm : coll::broadcast::algorithms()) {
      expect_right(make_broadcast(algorithm, shape, root), root, seed);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(RootedReplay, SequencesOverARingOfSlotsDoNotMeet) {
  for (std::uint64_t seed = 1; seed <= 1000; seed += kOneOf) {
    Generator generator(seed);
    const NodeMap map = random_map(generator, generator.number(1, 12));
    std::vector<ReplayCall> calls;
    std::string names;
    const int count = generator.number(2, 4);
    for (int i = 0; i < count; ++i) {
      const int root = generator.number(0, map.ranks() - 1);
      Shape shape = random_shape(generator, map, generator.number(1, 4), 1, 60);
      if (generator.number(0, 2) > 0) shape.switches = random_switches(generator, map.nodes());
      const int kind = generator.number(0, 3);
      if (kind == 3) {
        const auto algorithms = coll::allgather::algorithms();
        const auto& algorithm =
            algorithms[generator.number(0, static_cast<int>(algorithms.size()) - 1)];
        calls.push_back(make_call(algorithm, shape));
        names += std::string(algorithm.name) + " ";
      } else {
        auto rooted = rooted_calls(shape, root);
        RootedCall& one = rooted[generator.number(0, static_cast<int>(rooted.size()) - 1)];
        names += one.name + " ";
        calls.push_back(std::move(one.call));
      }
    }
    const ReplayOptions options{.seed = seed, .slots = generator.number(1, 3)};
    const auto violations = replay(calls, options);
    ASSERT_TRUE(violations.empty())
        << "seed " << seed << ", " << map.ranks() << " ranks, " << options.slots << " slots, "
        << names << sentences(violations);
  }
}

TEST(RootedReplay, WithoutTheDoneRuleAFastRootOverwritesSlots) {
  const Shape shape = uniform_shape(NodeMap({0, 0, 1, 1, 2, 2}), 40, 1, 1);
  const auto& algorithm = *coll::broadcast::find_algorithm("smp-binomial");
  const std::vector<ReplayCall> calls(4, make_broadcast(algorithm, shape, 1).call);
  const auto overwrites = [&](bool done_rule) {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
      for (const Violation& violation :
           replay(calls, {.seed = seed, .slots = 2, .done_rule = done_rule})) {
        if (violation.fault == Fault::OverwrittenInUse) return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(overwrites(false));
  EXPECT_FALSE(overwrites(true));
}

}  // namespace
}  // namespace allrail::schedule::testing
