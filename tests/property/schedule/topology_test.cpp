#include <functional>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "coll/schedule/switch_tree.hpp"
#include "tests/property/schedule/rooted_call.hpp"

// Gathers and scatters over leaf switches: the bytes are right on every map of nodes and switches
// from every root, and the messages that cross from switch to switch are counted.
namespace allrail::schedule::testing {
namespace {

constexpr const char* kNames[] = {"topology", "topology-direct"};

std::vector<RootedCall> topology_calls(const Shape& shape, int root) {
  std::vector<RootedCall> calls;
  for (const char* name : kNames) {
    calls.push_back(make_gather(*coll::gather::find_algorithm(name), shape, root));
    calls.push_back(make_scatter(*coll::scatter::find_algorithm(name), shape, root));
  }
  return calls;
}

std::string text_of(const Shape& shape) {
  std::ostringstream text;
  text << "nodes";
  for (const int node : shape.map.node_of) text << ' ' << node;
  text << ", leaves of nodes";
  for (const int leaf : shape.switches->leaf_of) text << ' ' << leaf;
  text << ", chassis of leaves";
  for (const int chassis : shape.switches->chassis_of) text << ' ' << chassis;
  text << ", " << shape.ports << " ports";
  return text.str();
}

/// Messages from group to group: how many in all, and how many each group sends and receives.
struct Crossings {
  int all = 0;
  std::map<int, int> sent;
  std::map<int, int> received;
  std::set<std::pair<int, int>> pairs;  // of ranks
};

template <class GroupOf>
Crossings crossings(const RootedCall& call, const GroupOf& group_of_node) {
  Crossings found;
  const auto group_of = [&](int rank) {
    return group_of_node(call.call.shape.map.node_of[static_cast<std::size_t>(rank)]);
  };
  for (int rank = 0; rank < call.call.shape.ranks(); ++rank) {
    for (const Step& step : call.call.schedules[static_cast<std::size_t>(rank)].steps) {
      if (step.kind != StepKind::Put || group_of(rank) == group_of(step.peer)) continue;
      ++found.all;
      ++found.sent[group_of(rank)];
      ++found.received[group_of(step.peer)];
      found.pairs.insert({rank, step.peer});
    }
  }
  return found;
}

/// One message crosses for every group but the root's, and in a gather each of them sends it.
template <class GroupOf>
void expect_one_for_each(const RootedCall& call, int root, const GroupOf& group_of_node) {
  const Shape& shape = call.call.shape;
  std::set<int> groups;
  for (int node = 0; node < shape.map.nodes(); ++node) groups.insert(group_of_node(node));
  const Crossings found = crossings(call, group_of_node);
  ASSERT_EQ(found.all, static_cast<int>(groups.size()) - 1) << call.name << ", " << text_of(shape);
  const int home = group_of_node(shape.map.node_of[static_cast<std::size_t>(root)]);
  const auto& counted = call.name.starts_with("gather") ? found.sent : found.received;
  for (const int group : groups) {
    const auto count = counted.find(group);
    ASSERT_EQ(count == counted.end() ? 0 : count->second, group == home ? 0 : 1)
        << call.name << ", group " << group << ", " << text_of(shape);
  }
}

void expect_right(const RootedCall& tested, int root, std::uint64_t seed) {
  const Shape& shape = tested.call.shape;
  const auto violations = replay({&tested.call, 1}, {.seed = seed});
  ASSERT_TRUE(violations.empty()) << tested.name << ", root " << root << ", " << text_of(shape)
                                  << ", seed " << seed << sentences(violations);
  for (const Schedule& schedule : tested.call.schedules) {
    ASSERT_LE(schedule.slot_bytes, tested.slot_bytes) << tested.name << ", " << text_of(shape);
  }
  const Switches& switches = *shape.switches;
  if (switches.leaves() < 2) return;
  const auto leaf = [&](int node) { return switches.leaf_of[static_cast<std::size_t>(node)]; };
  expect_one_for_each(tested, root, leaf);
  if (switches.chassis_of.empty()) return;
  expect_one_for_each(tested, root, [&](int node) {
    return switches.chassis_of[static_cast<std::size_t>(leaf(node))];
  });
}

/// Every way to put so many things into groups, numbered as they are met.
void for_all_groupings(int things, const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> group_of;
  const std::function<void(int)> place = [&](int groups) {
    if (static_cast<int>(group_of.size()) == things) return visit(group_of);
    for (int group = 0; group <= groups; ++group) {
      group_of.push_back(group);
      place(std::max(groups, group + 1));
      group_of.pop_back();
    }
  };
  place(0);
}

TEST(Topology, EverySwitchMapOfUpToFourNodes) {
  std::uint64_t seed = 1;
  Sample sample;
  const auto check = [&](const std::vector<int>& node_of, const Switches& switches) {
    const int ranks = static_cast<int>(node_of.size());
    for (int root = 0; root < ranks; ++root) {
      for (int kind = 0; kind < 3; ++kind) {  // empty, equal, uneven with empty ones
        std::vector<std::uint64_t> bytes(node_of.size(), kind == 0 ? 0 : 5);
        for (int rank = 0; kind == 2 && rank < ranks; ++rank) {
          bytes[static_cast<std::size_t>(rank)] = rank % 3 == 1 ? 0 : 90 * (rank % 3) + rank;
        }
        ++seed;
        if (!sample.takes_next()) continue;
        Shape shape = packed_shape(NodeMap(node_of), bytes, 1 + static_cast<int>(seed % 3), 1);
        shape.switches = std::make_shared<Switches>(switches);
        for (const RootedCall& call : topology_calls(shape, root)) {
          expect_right(call, root, seed);
          if (HasFatalFailure()) return;
        }
      }
    }
  };
  for (int nodes = 1; nodes <= 4; ++nodes) {
    for (const int ranks : {nodes, nodes + 2}) {
      std::vector<int> node_of;
      for (int rank = 0; rank < ranks; ++rank) node_of.push_back(rank % nodes);
      for_all_groupings(nodes, [&](const std::vector<int>& leaf_of) {
        check(node_of, {leaf_of, {}});
        const int leaves = *std::ranges::max_element(leaf_of) + 1;
        for_all_groupings(leaves, [&](const std::vector<int>& chassis_of) {
          if (!HasFatalFailure()) check(node_of, {leaf_of, chassis_of});
        });
      });
    }
  }
}

TEST(Topology, SampledUpTo64Ranks) {
  for (std::uint64_t seed = 1; seed <= 200; seed += kOneOf) {
    Generator generator(seed);
    NodeMap map = random_map(generator, generator.number(5, 64));
    const int root = generator.number(0, map.ranks() - 1);
    Shape shape = random_shape(generator, std::move(map), generator.number(1, 8), 1, 24);
    shape.switches = random_switches(generator, shape.map.nodes());
    for (const RootedCall& call : topology_calls(shape, root)) {
      expect_right(call, root, seed);
      if (HasFatalFailure()) return;
    }
  }
}

/// Leaves of `size` nodes each, one rank per node.
Shape even_shape(int leaves, int size, int ports) {
  std::vector<int> node_of;
  auto switches = std::make_shared<Switches>();
  for (int node = 0; node < leaves * size; ++node) {
    node_of.push_back(node);
    // By turns, so that neighbours by number are on different switches.
    switches->leaf_of.push_back(node % leaves);
  }
  Shape shape = uniform_shape(NodeMap(node_of), 16, ports, 1);
  shape.switches = std::move(switches);
  return shape;
}

TEST(Topology, StepsAreThoseOfTheTreesAndOneMoreForARootThatDoesNotLead) {
  const auto rounds = [](const Shape& shape, int root, const char* name) {
    const auto& scatter = *coll::scatter::find_algorithm(name);
    const auto steps =
        coll::gather::make_schedule(*coll::gather::find_algorithm(name), shape, root, 0).rounds;
    EXPECT_EQ(coll::scatter::make_schedule(scatter, shape, root, 0).rounds, steps) << name;
    return steps;
  };
  // log2 8 in a leaf, log2 4 over the leaves. Nodes 0 to 3 are the first on theirs.
  const Shape one_port = even_shape(4, 8, 1);
  EXPECT_EQ(rounds(one_port, 2, "topology"), 3 + 2);
  EXPECT_EQ(rounds(one_port, 6, "topology"), 3 + 2 + 1);
  EXPECT_EQ(rounds(one_port, 2, "topology-direct"), 7 + 3);
  EXPECT_EQ(rounds(one_port, 6, "topology-direct"), 7 + 3 + 1);
  // log4 16 in a leaf and log4 4 over the leaves, three at a time.
  const Shape three_ports = even_shape(4, 16, 3);
  EXPECT_EQ(rounds(three_ports, 0, "topology"), 2 + 1);
  EXPECT_EQ(rounds(three_ports, 0, "topology-direct"), 5 + 1);
}

TEST(Topology, TheSameNodesTalkAcrossSwitchesFromEveryRootOnASwitch) {
  const Shape shape = even_shape(3, 4, 1);
  for (const char* name : kNames) {
    const auto pairs = [&](int root) {
      const auto leaf = [&](int node) {
        return shape.switches->leaf_of[static_cast<std::size_t>(node)];
      };
      return crossings(make_gather(*coll::gather::find_algorithm(name), shape, root), leaf).pairs;
    };
    EXPECT_EQ(pairs(1), pairs(4)) << name;
    EXPECT_EQ(pairs(1), pairs(10)) << name;
    EXPECT_NE(pairs(1), pairs(2)) << name;
  }
}

TEST(Topology, ABinomialTreeOverNodesCrossesMoreOften) {
  const Shape shape = even_shape(4, 8, 1);
  const auto leaf = [&](int node) {
    return shape.switches->leaf_of[static_cast<std::size_t>(node)];
  };
  const auto crossed = [&](const char* name) {
    return crossings(make_gather(*coll::gather::find_algorithm(name), shape, 0), leaf).all;
  };
  EXPECT_EQ(crossed("topology"), 3);
  EXPECT_EQ(crossed("topology-direct"), 3);
  EXPECT_EQ(crossed("smp-binomial"), 24) << "every child whose number is no multiple of four";
  EXPECT_EQ(crossed("smp-direct"), 24) << "every node of another leaf";
}

TEST(Topology, WithoutSwitchesItIsTheFlatForm) {
  Shape shape = uniform_shape(NodeMap({0, 1, 2, 2, 3, 1}), 16, 2, 1);
  const auto puts = [&](const char* name, int rank) {
    std::vector<std::pair<int, int>> found;
    const auto schedule =
        coll::gather::make_schedule(*coll::gather::find_algorithm(name), shape, 3, rank);
    for (const Step& step : schedule.steps) {
      if (step.kind == StepKind::Put) found.emplace_back(step.peer, step.round);
    }
    return found;
  };
  const auto expect_flat = [&] {
    for (int rank = 0; rank < shape.ranks(); ++rank) {
      EXPECT_EQ(puts("topology", rank), puts("smp-binomial", rank));
      EXPECT_EQ(puts("topology-direct", rank), puts("smp-direct", rank));
    }
  };
  expect_flat();
  shape.switches = std::make_shared<Switches>(Switches{{2, 2, 2, 2}, {}});
  expect_flat();
}

TEST(Topology, ATreeListsEverybodyOnceAndParentsFirst) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Generator generator(seed);
    const int nodes = generator.number(1, 40);
    const auto switches = random_switches(generator, nodes);
    const int root = generator.number(0, nodes - 1);
    const int ports = generator.number(1, 5);
    for (const Join join : {Join::Binomial, Join::Direct}) {
      const Tree tree = tree_over_switches(*switches, root, join, ports);
      std::vector<int> order = tree.order;
      EXPECT_EQ(order.front(), root);
      std::ranges::sort(order);
      std::map<std::pair<int, int>, int> children;  // by parent and round
      for (int place = 0; place < nodes; ++place) {
        ASSERT_EQ(order[static_cast<std::size_t>(place)], place) << "seed " << seed;
        const int parent = tree.parent[static_cast<std::size_t>(place)];
        ASSERT_EQ(parent < 0, place == 0) << "seed " << seed;
        if (place == 0) continue;
        ASSERT_LT(parent, place) << "seed " << seed;
        const int round = tree.round[static_cast<std::size_t>(place)];
        ASSERT_LT(round, tree.rounds) << "seed " << seed;
        ASSERT_TRUE(parent == 0 || round < tree.round[static_cast<std::size_t>(parent)])
            << "seed " << seed << ": what a child sends comes before its parent sends";
        ASSERT_LE(++children[std::pair(parent, round)], ports) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace allrail::schedule::testing
