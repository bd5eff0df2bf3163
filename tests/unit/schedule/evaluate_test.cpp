#include "coll/schedule/evaluate.hpp"

#include <stdexcept>

#include <gtest/gtest.h>

// Times that can be worked out by hand.
namespace allrail::schedule {
namespace {

Action action(Act act, int peer, std::uint64_t amount, double work_s = 0) {
  Action made;
  made.act = act;
  made.peer = peer;
  made.amount = amount;
  made.work_s = work_s;
  return made;
}
Action put(int peer, std::uint64_t bytes, int rail = 0, double work_s = 0) {
  Action made = action(Act::Put, peer, bytes, work_s);
  made.rail = static_cast<std::uint8_t>(rail);
  return made;
}
Action await(int peer, double work_s = 0) { return action(Act::Await, peer, 0, work_s); }
Action raise(std::uint64_t stage, double work_s) { return action(Act::Raise, -1, stage, work_s); }
Action await_flag(int local, std::uint64_t stage) { return action(Act::AwaitFlag, local, stage); }
Action await_sent() { return action(Act::AwaitSent, -1, 0); }
Action end(double work_s = 0) { return action(Act::End, -1, 0, work_s); }
/// The end behind a copy of what local rank `near` received.
Action end_copying(double bytes, int near) {
  Action made = end(bytes);
  made.copied_bytes = bytes;
  made.near = static_cast<std::int16_t>(near);
  return made;
}

/// A byte takes a second on each of `rails` rails.
Model slow_model(int rails) {
  Model model;
  model.rail_s_per_byte.assign(static_cast<std::size_t>(rails), 1);
  return model;
}

TEST(Evaluate, APutCostsItsPartsOneAfterTheOther) {
  Model model = slow_model(1);
  model.startup_s = 10;
  model.latency_s = 100;
  model.switches.hop_s = 1000;
  const Evaluation result =
      evaluate(NodeMap({0, 1}), {{put(1, 7, 0, 0.25), end()}, {await(0), end(0.5)}}, model);
  EXPECT_DOUBLE_EQ(result.finished_s[0], 0.25);
  EXPECT_DOUBLE_EQ(result.seconds, 0.25 + 10 + 7 + 100 + 1000 + 0.5);
  EXPECT_EQ(result.puts, 1U);
  EXPECT_EQ(result.bytes_by_rail, 7U);
}

TEST(Evaluate, RanksOfANodeShareItsRails) {
  const std::vector<Program> programs{
      {put(2, 4), end()}, {put(3, 4), end()}, {await(0), end()}, {await(1), end()}};
  EXPECT_DOUBLE_EQ(evaluate(NodeMap({0, 0, 1, 2}), programs, slow_model(1)).seconds, 8);
  EXPECT_DOUBLE_EQ(evaluate(NodeMap({0, 1, 2, 2}), programs, slow_model(1)).seconds, 8);
  EXPECT_DOUBLE_EQ(evaluate(NodeMap({0, 1, 2, 3}), programs, slow_model(1)).seconds, 4);
}

TEST(Evaluate, LongPutsTravelOnAllRailsByTheirRates) {
  Model model = slow_model(2);
  model.rail_s_per_byte = {1, 3};
  model.stripe_bytes = 8;
  const NodeMap map({0, 1});
  const auto time = [&](std::uint64_t bytes, int turn) {
    return evaluate(map, {{put(1, bytes, turn), end()}, {await(0), end()}}, model).seconds;
  };
  EXPECT_DOUBLE_EQ(time(8, 0), 8);
  EXPECT_DOUBLE_EQ(time(8, 1), 24);
  EXPECT_DOUBLE_EQ(time(12, 0), 9);  // 9 bytes on one, 3 on the other
}

TEST(Evaluate, AnAwaitIsForThePutThatIsItsOwn) {
  // The second put overtakes the first one on the other rail; whoever awaits the first one first
  // still waits for it.
  const Evaluation result = evaluate(
      NodeMap({0, 1}), {{put(1, 9, 0), put(1, 1, 1), end()}, {await(0), await(0, 5), end()}},
      slow_model(2));
  EXPECT_DOUBLE_EQ(result.seconds, 9 + 5);
}

TEST(Evaluate, LeafSwitchesShareTheirWayUpAndDown) {
  Model model = slow_model(1);
  model.switches.leaf_nodes = {2};
  const NodeMap map({0, 1, 2, 3});
  const std::vector<Program> across{
      {put(2, 4), end()}, {put(3, 4), end()}, {await(0), end()}, {await(1), end()}};
  EXPECT_DOUBLE_EQ(evaluate(map, across, model).seconds, 4);  // a cable for each
  model.switches.oversubscription = 2;
  EXPECT_DOUBLE_EQ(evaluate(map, across, model).seconds, 8);
  model.switches.background = 0.5;
  EXPECT_DOUBLE_EQ(evaluate(map, across, model).seconds, 16);
  model.switches.hop_s = 100;
  EXPECT_DOUBLE_EQ(evaluate(map, across, model).seconds, 16 + 300);
  model.switches.uplink_bytes_per_s = 1;
  model.switches.background = 0;
  EXPECT_DOUBLE_EQ(evaluate(map, across, model).seconds, 8 + 300);
  const std::vector<Program> within{
      {put(1, 4), end()}, {await(0), end()}, {put(3, 4), end()}, {await(2), end()}};
  EXPECT_DOUBLE_EQ(evaluate(map, within, model).seconds, 4 + 100);
  model.switches.leaf_nodes = {1, 3};
  EXPECT_DOUBLE_EQ(evaluate(map, within, model).seconds, 4 + 300);
}

TEST(Evaluate, WhatADomainWithoutRailsReceivesTakesLonger) {
  Model model = slow_model(1);
  model.domains = 2;
  model.far_factor = 3;
  const NodeMap map({0, 0, 1, 1});
  EXPECT_DOUBLE_EQ(
      evaluate(map, {{put(2, 5), end()}, {end()}, {await(0), end()}, {end()}}, model).seconds, 5);
  EXPECT_DOUBLE_EQ(
      evaluate(map, {{put(3, 5), end()}, {end()}, {end()}, {await(0), end()}}, model).seconds, 15);
  EXPECT_DOUBLE_EQ(
      evaluate(map, {{end()}, {put(2, 5), end()}, {await(1), end()}, {end()}}, model).seconds, 5);
}

TEST(Evaluate, LocalPutsAreCopiesOfTheSender) {
  Model model = slow_model(1);
  model.copy_s_per_byte = 2;
  model.flag_s = 0.5;
  const NodeMap map({0, 0});
  const std::vector<Program> programs{{put(1, 3), end(1)}, {await(0), end()}};
  const Evaluation copied = evaluate(map, programs, model);
  EXPECT_DOUBLE_EQ(copied.finished_s[0], 7);
  EXPECT_DOUBLE_EQ(copied.finished_s[1], 6.5);
  EXPECT_EQ(copied.bytes_by_rail, 0U);
  model.local_puts_by_rail = true;
  EXPECT_DOUBLE_EQ(evaluate(map, programs, model).finished_s[1], 3);
}

TEST(Evaluate, FlagsAreAwaitedUntilTheyAreRaised) {
  const Evaluation result = evaluate(
      NodeMap({0, 0, 0}),
      {{raise(1, 2), raise(2, 3), end()}, {await_flag(0, 2), end(1)}, {await_flag(0, 1), end()}},
      slow_model(1));
  EXPECT_DOUBLE_EQ(result.finished_s[1], 6);
  EXPECT_DOUBLE_EQ(result.finished_s[2], 2);
}

TEST(Evaluate, WhoCopiesInOneMemorySharesIt) {
  Model model = slow_model(1);
  model.domains = 2;
  const NodeMap map({0, 0, 0, 0});
  const auto time = [&](int near_of_last) {
    return evaluate(map,
                    {{end_copying(4, -1)},
                     {end_copying(4, 0)},
                     {end_copying(4, -1)},
                     {end_copying(4, near_of_last)}},
                    model)
        .seconds;
  };
  EXPECT_DOUBLE_EQ(time(0), 4);  // as fast together as alone
  model.memory_s_per_byte = 1;
  EXPECT_DOUBLE_EQ(time(0), 12);
  EXPECT_DOUBLE_EQ(time(2), 8);
}

TEST(Evaluate, AwaitSentIsUntilEverythingHasLanded) {
  const Evaluation result = evaluate(
      NodeMap({0, 1}), {{put(1, 3), put(1, 4), await_sent(), end()}, {await(0), await(0), end()}},
      slow_model(1));
  EXPECT_DOUBLE_EQ(result.finished_s[0], 7);
}

TEST(Evaluate, OneCellStandsForAllThatDoTheSame) {
  // A ring of four nodes: everybody puts to the next one, who puts on.
  const NodeMap map({0, 1, 2, 3});
  const auto program = [](int rank) {
    const int next = (rank + 1) % 4;
    const int before = (rank + 3) % 4;
    return Program{put(next, 2), await(before), put(next, 3), await(before), end()};
  };
  EXPECT_DOUBLE_EQ(
      evaluate(map, {program(0), program(1), program(2), program(3)}, slow_model(1)).seconds, 5);
  EXPECT_DOUBLE_EQ(evaluate(map, {program(0)}, slow_model(1), Symmetry::Shift).seconds, 5);
  // Neighbours exchange, then pairs do: everybody turns the same bit.
  EXPECT_DOUBLE_EQ(evaluate(map, {{put(1, 2), await(1), put(2, 4), await(2), end()}}, slow_model(1),
                            Symmetry::Exclusive)
                       .seconds,
                   6);
}

TEST(Evaluate, RefusesWhatDoesNotFitTogether) {
  const NodeMap map({0, 1, 2});
  EXPECT_THROW(evaluate(map, {{await(1), end()}, {end()}, {end()}}, slow_model(1)),
               std::invalid_argument);
  EXPECT_THROW(evaluate(map, {{end()}, {end()}}, slow_model(1)), std::invalid_argument);
  EXPECT_THROW(evaluate(map, {{end()}}, slow_model(1)), std::invalid_argument);
  EXPECT_THROW(evaluate(map, {{end()}}, slow_model(1), Symmetry::Exclusive), std::invalid_argument);
  Model model = slow_model(1);
  model.switches.background = 1;
  EXPECT_THROW(evaluate(map, {{end()}, {end()}, {end()}}, model), std::invalid_argument);
}

}  // namespace
}  // namespace allrail::schedule
