#include "coll/schedule/simulate.hpp"

#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

#include "coll/imagined_call.hpp"

// What holds for every algorithm under every model: more bytes or latency take longer, a second
// rail does not, one cell stands for all, and the closed form of the node phase is that of its
// steps.
namespace allrail::schedule::testing {
namespace {

using coll::ImaginedCall;
using coll::ImaginedSchedules;
using coll::Operation;

/// Everything costs something.
Model full_model(int rails) {
  Model model;
  model.startup_s = 0.2e-6;
  model.latency_s = 1.5e-6;
  model.post_s = 0.2e-6;
  model.arrival_s = 0.15e-6;
  model.rail_s_per_byte.assign(static_cast<std::size_t>(rails), 1 / 5e9);
  model.stripe_bytes = 16384;
  model.copy_s_per_byte = 1 / 8e9;
  model.flag_s = 0.1e-6;
  return model;
}

/// The network alone: nothing in a node takes time.
Model network_model(int rails) {
  Model model = full_model(rails);
  model.copy_s_per_byte = model.flag_s = 0;
  return model;
}

NodeMap blocks(int nodes, int ranks_per_node) {
  std::vector<int> node_of;
  for (int rank = 0; rank < nodes * ranks_per_node; ++rank)
    node_of.push_back(rank / ranks_per_node);
  return NodeMap(node_of);
}

struct Tested {
  Operation operation;
  const char* algorithm;
};
constexpr Tested kTested[] = {
    {Operation::Allgather, "direct"},
    {Operation::Allgather, "ring"},
    {Operation::Allgather, "bruck"},
    {Operation::Allgather, "recursive-doubling"},
    {Operation::Allgather, "smp-direct"},
    {Operation::Allgather, "smp-ring"},
    {Operation::Allgather, "smp-bruck"},
    {Operation::Allgather, "smp-recursive-doubling"},
    {Operation::Allgather, "smp-gather-broadcast"},
    {Operation::Allgather, "smp-multi-leader-ring"},
    {Operation::Gather, "direct"},
    {Operation::Gather, "binomial"},
    {Operation::Gather, "smp-direct"},
    {Operation::Gather, "smp-binomial"},
    {Operation::Scatter, "smp-direct"},
    {Operation::Scatter, "smp-binomial"},
    {Operation::Broadcast, "binomial"},
    {Operation::Broadcast, "smp-chain"},
    {Operation::Broadcast, "smp-scatter-allgather"},
    {Operation::Alltoall, "direct"},
    {Operation::Alltoall, "bruck"},
    {Operation::Alltoall, "smp-direct"},
    {Operation::Alltoall, "smp-bruck"},
    {Operation::Alltoall, "smp-recursive-doubling"},
};

double time_of(const Tested& tested, NodeMap map, std::uint64_t bytes, const Model& model,
               int ports = 1) {
  const ImaginedSchedules schedules({tested.operation, tested.algorithm, bytes, 0, ports, 1},
                                    std::move(map));
  return simulate(
             schedules.map(), [&](int rank) { return schedules.of(rank); }, model, schedules.root())
      .seconds;
}

TEST(Simulate, MoreBytesAndMoreLatencyTakeLonger) {
  for (const Tested& tested : kTested) {
    for (const int nodes : {2, 5, 8}) {
      SCOPED_TRACE(std::string(tested.algorithm) + " " + std::to_string(nodes));
      double before = 0;
      for (std::uint64_t bytes = 64; bytes <= 1 << 20; bytes *= 4) {
        const double time = time_of(tested, blocks(nodes, 3), bytes, full_model(2));
        EXPECT_GT(time, before) << bytes;
        before = time;
        Model slower = full_model(2);
        slower.latency_s *= 4;
        const double later = time_of(tested, blocks(nodes, 3), bytes, slower);
        // Copies of large blocks hide it.
        EXPECT_GE(later, time) << bytes;
        if (bytes == 64) {
          EXPECT_GT(later, time);
        }
      }
    }
  }
}

TEST(Simulate, ASecondRailMakesNothingSlower) {
  for (const Tested& tested : kTested) {
    for (const int ports : {1, 2}) {
      for (const std::uint64_t bytes : {64ULL, 4096ULL, 65536ULL, 1ULL << 20}) {
        const double one = time_of(tested, blocks(6, 2), bytes, full_model(1), ports);
        const double two = time_of(tested, blocks(6, 2), bytes, full_model(2), ports);
        EXPECT_LE(two, one * 1.000001) << tested.algorithm << " " << bytes << " " << ports;
      }
    }
  }
}

TEST(Simulate, BackgroundTrafficAndOversubscriptionSlowDownWhatCrosses) {
  for (const Tested& tested : kTested) {
    Model model = full_model(1);
    model.switches.leaf_nodes = {4};
    const double quiet = time_of(tested, blocks(8, 2), 1 << 18, model);
    model.switches.background = 0.9;
    const double busy = time_of(tested, blocks(8, 2), 1 << 18, model);
    EXPECT_GT(busy, quiet) << tested.algorithm;
    model.switches.background = 0;
    model.switches.oversubscription = 16;
    EXPECT_GT(time_of(tested, blocks(8, 2), 1 << 18, model), quiet) << tested.algorithm;
  }
}

/// As if every job were too large to evaluate all of its ranks.
constexpr SimulationLimits kOneCell{
    .actions = 0, .steps = 0, .most_actions = 1U << 20, .most_steps = 0};

TEST(Simulate, OneCellStandsForAllOfASymmetricAlgorithm) {
  for (const Tested& tested : kTested) {
    const std::string name = tested.algorithm;
    if (tested.operation != Operation::Allgather && tested.operation != Operation::Alltoall)
      continue;
    if (name == "smp-gather-broadcast") continue;
    for (const auto& [nodes, size, leaf] : {std::tuple{8, 1, 0}, {16, 2, 0}, {16, 2, 4}}) {
      SCOPED_TRACE(name + " " + std::to_string(nodes) + " " + std::to_string(leaf));
      const ImaginedSchedules schedules({tested.operation, name, 1000, 0, 1, 1},
                                        blocks(nodes, size));
      Model model = full_model(2);
      if (leaf > 0) model.switches.leaf_nodes = {leaf};
      const auto schedule_of = [&](int rank) { return schedules.of(rank); };
      const Simulation all = simulate(schedules.map(), schedule_of, model, -1);
      const Simulation cell = simulate(schedules.map(), schedule_of, model, -1, {}, kOneCell);
      EXPECT_EQ(all.ranks_evaluated, nodes * size);
      EXPECT_EQ(cell.ranks_evaluated, std::max(leaf, 1) * size);
      EXPECT_NEAR(cell.seconds, all.seconds, all.seconds * 1e-6);
    }
  }
}

TEST(Simulate, WhatHasARootIsNotTakenForSymmetric) {
  for (const Tested& tested : kTested) {
    if (tested.operation == Operation::Allgather || tested.operation == Operation::Alltoall)
      continue;
    // Of ranks that are looked at one by one, and of one between them.
    for (const int root : {0, 6}) {
      const ImaginedSchedules schedules({tested.operation, tested.algorithm, 1000, root, 1, 1},
                                        blocks(8, 2));
      EXPECT_THROW(simulate(
                       schedules.map(), [&](int rank) { return schedules.of(rank); }, full_model(1),
                       schedules.root(), {}, kOneCell),
                   std::length_error)
          << tested.algorithm << " " << root;
    }
  }
}

TEST(Simulate, TheNodePhaseInClosedFormIsThatOfItsSteps) {
  for (const Tested& tested : kTested) {
    const ImaginedCall whole{tested.operation, tested.algorithm, 4096, 0, 1, 1};
    if (!ImaginedSchedules(whole, blocks(2, 1)).is_over_nodes()) continue;
    for (const int leaders : {1, 2, 4}) {
      const bool has_lanes =
          tested.operation == Operation::Allgather || tested.operation == Operation::Alltoall;
      if (leaders > 1 && !has_lanes) continue;
      ImaginedCall call = whole;
      call.leaders = leaders;
      const coll::LeadersOnly reduced = coll::leaders_only(call, 8);
      const ImaginedSchedules steps(call, blocks(6, 8));
      ImaginedSchedules closed(reduced.call, blocks(6, reduced.ranks_per_node));
      closed.stand_for_several();
      const auto time = [](const ImaginedSchedules& schedules, const Model& model,
                           const NodePhase& phase) {
        return simulate(
                   schedules.map(), [&](int rank) { return schedules.of(rank); }, model,
                   schedules.root(), phase)
            .seconds;
      };
      SCOPED_TRACE(std::string(tested.algorithm) + " " + std::to_string(leaders));
      const double network = time(steps, network_model(2), {});
      EXPECT_NEAR(time(closed, network_model(2), reduced.phase), network, network * 1e-6);
      const double all = time(steps, full_model(2), {});
      EXPECT_NEAR(time(closed, full_model(2), reduced.phase), all, all * 0.1);
      Model copying = full_model(2);  // hardly anything but copies
      copying.copy_s_per_byte *= 100;
      const double copied = time(steps, copying, {});
      EXPECT_NEAR(time(closed, copying, reduced.phase), copied, copied * 0.1);
    }
  }
}

}  // namespace
}  // namespace allrail::schedule::testing
