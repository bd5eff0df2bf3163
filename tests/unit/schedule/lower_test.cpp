#include "coll/schedule/lower.hpp"

#include <algorithm>
#include <stdexcept>

#include <gtest/gtest.h>

#include "coll/allgather/allgather.hpp"
#include "coll/schedule/contents.hpp"
#include "coll/schedule/pairs.hpp"
#include "coll/schedule/regions.hpp"

namespace allrail::schedule {
namespace {

namespace allgather = coll::allgather;

Step copy(Memory from, std::uint64_t from_offset, Memory to, std::uint64_t to_offset,
          std::uint64_t bytes, int round = 0) {
  return {StepKind::Copy, from,      to,   static_cast<std::uint16_t>(round), 0, -1, 0,
          from_offset,    to_offset, bytes};
}

Step publish(std::uint32_t stage, int round = 0) {
  return {.kind = StepKind::Publish,
          .from = Memory::Slot,
          .to = Memory::Slot,
          .round = static_cast<std::uint16_t>(round),
          .stage = stage};
}

Step await_local(int local, std::uint32_t stage, int round = 0) {
  return {.kind = StepKind::AwaitLocal,
          .from = Memory::Slot,
          .to = Memory::Slot,
          .round = static_cast<std::uint16_t>(round),
          .peer = local,
          .stage = stage};
}

Step stamp(std::uint64_t offset) {
  return {StepKind::Stamp, Memory::Slot, Memory::Slot, 0, 0, -1, 0, 0, offset, kHeaderBytes};
}

Step put(int peer, std::uint64_t from_offset, std::uint64_t to_offset, std::uint64_t bytes) {
  return {StepKind::Put, Memory::Slot, Memory::Slot, 0, 0, peer, 0, from_offset, to_offset, bytes};
}

Step await(int peer, std::uint64_t to_offset, std::uint64_t bytes) {
  // In these exchanges every put begins with the sender's own region.
  return {StepKind::Await, Memory::Slot, Memory::Slot, 0, 0, peer, 0, to_offset, to_offset, bytes};
}

Schedule make(const char* name, const Shape& shape, int rank) {
  return allgather::make_schedule(*allgather::find_algorithm(name), shape, rank);
}

TEST(Lower, OneRankIsOneCopy) {
  const Shape shape = uniform_shape(NodeMap({0}), 10, 2, 2);
  for (const allgather::Algorithm& algorithm : allgather::algorithms()) {
    const Schedule schedule = allgather::make_schedule(algorithm, shape, 0);
    EXPECT_EQ(schedule.steps, std::vector<Step>{copy(Memory::Send, 0, Memory::Receive, 0, 10)});
    EXPECT_EQ(schedule.slot_bytes, 0U);
    EXPECT_EQ(schedule.rounds, 0);
  }
}

TEST(Lower, OneNodeSharesMemoryAndMergesCopies) {
  const Schedule schedule = make("smp-bruck", uniform_shape(NodeMap({0, 0, 0}), 10, 1, 1), 0);
  EXPECT_EQ(
      schedule.steps,
      (std::vector<Step>{copy(Memory::Send, 0, Memory::Slot, 64, 10), publish(1),
                         copy(Memory::Send, 0, Memory::Receive, 0, 10), await_local(1, 1),
                         await_local(2, 1), copy(Memory::Slot, 74, Memory::Receive, 10, 20)}));
  EXPECT_EQ(schedule.slot_bytes, 128U);
  EXPECT_EQ(schedule.stages, 1U);
}

TEST(Lower, LeaderAndFollowerOfTwoNodes) {
  // Node 0 holds ranks 0 and 1, node 1 ranks 2 and 3; a region is 64 + 64 bytes for 2 * 10.
  const Shape shape = uniform_shape(NodeMap({0, 0, 1, 1}), 10, 1, 1);
  const Schedule leader = make("smp-direct", shape, 0);
  EXPECT_EQ(
      leader.steps,
      (std::vector<Step>{copy(Memory::Send, 0, Memory::Slot, 64, 10), publish(1), await_local(1, 1),
                         stamp(0), put(2, 0, 0, 84), copy(Memory::Send, 0, Memory::Receive, 0, 10),
                         copy(Memory::Slot, 74, Memory::Receive, 10, 10), await(2, 128, 84),
                         publish(2), copy(Memory::Slot, 192, Memory::Receive, 20, 20)}));
  EXPECT_EQ(leader.slot_bytes, 256U);
  EXPECT_EQ(leader.stages, 2U);
  EXPECT_EQ(leader.header_offsets, std::vector<std::uint64_t>{128}) << "that of the other node";
  EXPECT_EQ(leader.rounds, 1);
  const Schedule follower = make("smp-direct", shape, 3);
  EXPECT_EQ(follower.steps,
            (std::vector<Step>{copy(Memory::Send, 0, Memory::Slot, 202, 10), publish(1),
                               copy(Memory::Send, 0, Memory::Receive, 30, 10), await_local(0, 1),
                               copy(Memory::Slot, 192, Memory::Receive, 20, 10), await_local(0, 2),
                               copy(Memory::Slot, 64, Memory::Receive, 0, 20)}));
  EXPECT_EQ(follower.stages, 2U);
  EXPECT_TRUE(follower.header_offsets.empty()) << "its leader puts, and looks at them";
}

TEST(Lower, FlatRanksHaveTheirPartOfTheSlot) {
  // Cyclic: ranks 0 and 2 on node 0. A part is 3 * 128 bytes; rank 2 is local rank 1.
  const Shape shape = uniform_shape(NodeMap({0, 1, 0}), 10, 2, 1);
  EXPECT_EQ(flat_part_bytes(shape), 384U);
  const Schedule schedule = make("direct", shape, 2);
  EXPECT_EQ(schedule.header_offsets, (std::vector<std::uint64_t>{384, 384 + 128}));
  std::vector<Step> steps{copy(Memory::Send, 0, Memory::Slot, 384 + 256 + 64, 10),
                          stamp(384 + 256),
                          put(0, 384 + 256, 256, 74),
                          put(1, 384 + 256, 256, 74),
                          copy(Memory::Send, 0, Memory::Receive, 20, 10),
                          await(1, 384 + 128, 74),
                          await(0, 384, 74),
                          copy(Memory::Slot, 384 + 128 + 64, Memory::Receive, 10, 10),
                          copy(Memory::Slot, 384 + 64, Memory::Receive, 0, 10)};
  steps[3].port = 1;
  steps[6].port = 1;
  EXPECT_EQ(schedule.steps, steps);
  EXPECT_EQ(schedule.slot_bytes, 768U);
  EXPECT_EQ(make("direct", shape, 1).slot_bytes, 384U);
}

TEST(Lower, EmptyBlocksStillTravelAsHeaders) {
  const Schedule schedule = make("direct", uniform_shape(NodeMap({0, 1}), 0, 1, 1), 0);
  EXPECT_EQ(schedule.steps, (std::vector<Step>{stamp(0), put(1, 0, 0, 64), await(1, 64, 64)}));
}

TEST(Lower, AnAwaitKnowsWhereTheSendersOwnHeaderLands) {
  const Shape shape = uniform_shape(NodeMap({0, 1, 2, 3}), 10, 1, 1);
  const Schedule schedule = make("smp-recursive-doubling", shape, 0);
  const auto second = std::ranges::find_if(schedule.steps, [](const Step& step) {
    return step.kind == StepKind::Await && step.round == 1;
  });
  ASSERT_NE(second, schedule.steps.end());
  EXPECT_EQ(second->peer, 2);
  EXPECT_EQ(second->to_offset, 256U);  // nodes 2 and 3, of which 2 is the sender
  EXPECT_EQ(second->from_offset, 256U);
  const Schedule other = make("smp-recursive-doubling", shape, 1);
  const auto from_three = std::ranges::find_if(other.steps, [](const Step& step) {
    return step.kind == StepKind::Await && step.round == 1;
  });
  ASSERT_NE(from_three, other.steps.end());
  EXPECT_EQ(from_three->peer, 3);
  EXPECT_EQ(from_three->to_offset, 256U);
  EXPECT_EQ(from_three->from_offset, 384U);
}

TEST(Lower, BruckPutsItsOwnRegionFirst) {
  const Shape shape = uniform_shape(NodeMap({0, 1, 2}), 10, 1, 1);
  const Schedule schedule = make("bruck", shape, 2);
  const auto first = std::ranges::find(schedule.steps, StepKind::Put, &Step::kind);
  ASSERT_NE(first, schedule.steps.end());
  EXPECT_EQ(first->peer, 1);
  EXPECT_EQ(first->from_offset, 0U);
  EXPECT_EQ(first->to_offset, 128U);  // right behind the peer's own region
}

TEST(Lower, ZeroCopySendsItsOwnBlockFromTheUser) {
  const Shape shape = packed_shape(NodeMap({0, 1, 2, 3}), {10, 10, 0, 10}, 1, 1);
  const Schedule schedule = allgather::make_zero_copy_schedule(
      *allgather::find_algorithm("recursive-doubling"), shape, 0, UINT64_MAX);
  // Round 0 with rank 1, round 1 with rank 2, which sends blocks 2 and 3, block 2 being empty.
  Step own{StepKind::Put, Memory::Send, Memory::Receive, 0, 0, 1, 0, 0, 0, 10};
  Step from_one{StepKind::Await, Memory::Receive, Memory::Receive, 0, 0, 1, 0, 0, 10, 10};
  Step both{StepKind::Put, Memory::Receive, Memory::Receive, 1, 0, 2, 0, 0, 0, 20};
  Step three{StepKind::Await, Memory::Receive, Memory::Receive, 1, 0, 2, 0, 0, 20, 10};
  EXPECT_EQ(schedule.steps, (std::vector<Step>{own, copy(Memory::Send, 0, Memory::Receive, 0, 10),
                                               from_one, both, three}));
  EXPECT_EQ(schedule.slot_bytes, 0U);
}

TEST(Lower, ZeroCopyJoinsNoMoreThanAPutMayHave) {
  const Shape shape = uniform_shape(NodeMap({0, 1, 2, 3, 4, 5, 6, 7}), 300, 1, 1);
  const Schedule schedule = allgather::make_zero_copy_schedule(
      *allgather::find_algorithm("recursive-doubling"), shape, 5, 700);
  std::vector<std::uint64_t> puts, awaits;
  for (const Step& step : schedule.steps) {
    if (step.kind == StepKind::Put) puts.push_back(step.bytes);
    if (step.kind == StepKind::Await) awaits.push_back(step.bytes);
  }
  const std::vector<std::uint64_t> expected{300, 600, 600, 600};  // of one, two and four blocks
  EXPECT_EQ(puts, expected);
  EXPECT_EQ(awaits, expected);
}

TEST(Lower, ZeroCopyNeedsAbsolutePlacement) {
  const Shape shape = uniform_shape(NodeMap({0, 1}), 8, 1, 1);
  EXPECT_THROW(lower_flat_zero_copy(allgather::bruck(2, 0, 1), shape, 0, UINT64_MAX),
               std::invalid_argument);
}

TEST(Lower, RefusesMoreRoundsThanAStepCanCount) {
  const Shape shape = uniform_shape(NodeMap({0, 1}), 8, 1, 1);
  Exchange exchange;
  exchange.rounds.resize(65536);
  EXPECT_THROW(lower_flat(exchange, shape, 0), std::invalid_argument);
}

Step receive_put(int peer, std::uint64_t offset, std::uint64_t bytes) {
  return {StepKind::Put, Memory::Receive, Memory::Receive, 0, 0, peer, 0, offset, offset, bytes};
}

Step receive_await(int peer, std::uint64_t offset, std::uint64_t bytes) {
  return {StepKind::Await, Memory::Receive, Memory::Receive, 0, 0, peer, 0, 0, offset, bytes};
}

TEST(LowerNodeShared, LeaderAndFollowerOfTwoNodes) {
  const Shape shape = packed_shape(NodeMap({0, 0, 1}), {10, 20, 30}, 1, 1);
  const Step own = copy(Memory::Send, 0, Memory::Receive, 0, 10);
  const Step sent{.kind = StepKind::AwaitSent, .from = Memory::Slot, .to = Memory::Slot};
  const Schedule leader = lower_node_shared(allgather::ring, shape, 0, 25);
  EXPECT_EQ(leader.steps, (std::vector<Step>{publish(1), await_local(1, 1), stamp(0), own,
                                             await_local(1, 2), receive_put(2, 0, 25),
                                             receive_put(2, 25, 5), receive_await(2, 30, 25),
                                             receive_await(2, 55, 5), sent, publish(2)}));
  EXPECT_EQ(leader.stages, 2U);
  EXPECT_EQ(leader.slot_bytes, kHeaderBytes);
  const Schedule follower = lower_node_shared(allgather::ring, shape, 1, 25);
  EXPECT_EQ(follower.steps, (std::vector<Step>{publish(1), await_local(0, 1),
                                               copy(Memory::Send, 0, Memory::Receive, 10, 20),
                                               publish(2), await_local(0, 2)}));
  const Schedule alone = lower_node_shared(allgather::ring, shape, 2, 25);
  EXPECT_EQ(alone.steps,
            (std::vector<Step>{stamp(0), copy(Memory::Send, 0, Memory::Receive, 30, 30),
                               receive_put(0, 30, 25), receive_put(0, 55, 5),
                               receive_await(0, 0, 25), receive_await(0, 25, 5), sent}));
}

TEST(LowerNodeShared, OneNodeNeedsNoSlot) {
  const Shape shape = uniform_shape(NodeMap({0, 0}), 10, 1, 1);
  const Schedule schedule = lower_node_shared(allgather::bruck, shape, 1, 1000);
  EXPECT_EQ(schedule.steps, (std::vector<Step>{publish(1), await_local(0, 1),
                                               copy(Memory::Send, 0, Memory::Receive, 10, 10),
                                               publish(2), await_local(0, 2)}));
  EXPECT_EQ(schedule.slot_bytes, 0U);
}

TEST(LowerNodeShared, TransfersAreCutWhereRanksOfOtherNodesLieBetween) {
  const Shape shape = uniform_shape(NodeMap({0, 1, 0, 1}), 10, 1, 1);
  const Schedule leader = lower_node_shared(allgather::ring, shape, 0, 1000);
  EXPECT_NE(std::ranges::find(leader.steps, receive_put(1, 0, 10)), leader.steps.end());
  EXPECT_NE(std::ranges::find(leader.steps, receive_put(1, 20, 10)), leader.steps.end());
  EXPECT_EQ(most_runs_per_transfer(allgather::ring, shape), 2U);
  const Shape blocked = uniform_shape(NodeMap({0, 0, 1, 1}), 10, 1, 1);
  EXPECT_EQ(most_runs_per_transfer(allgather::ring, blocked), 1U);
}

TEST(LowerNodeShared, NeedsAbsolutePlacement) {
  const Shape shape = uniform_shape(NodeMap({0, 1}), 8, 1, 1);
  EXPECT_THROW(lower_node_shared(allgather::bruck, shape, 0, 1000), std::invalid_argument);
  EXPECT_THROW(lower_node_shared(allgather::ring, shape, 0, 0), std::invalid_argument);
}

TEST(LowerNodeSharedCopied, OnlyTheLeaderCopiesWhatArrived) {
  const Shape shape = uniform_shape(NodeMap({0, 0, 1}), 10, 1, 1);
  const auto from_slot = [](const Step& step) {
    return step.kind == StepKind::Copy && step.from == Memory::Slot;
  };
  const Schedule leader = lower_node_shared_copied(allgather::bruck, shape, 0);
  EXPECT_EQ(std::ranges::count_if(leader.steps, from_slot), 1);
  EXPECT_EQ(leader.header_offsets.size(), 1U);
  const Schedule follower = lower_node_shared_copied(allgather::bruck, shape, 1);
  EXPECT_EQ(std::ranges::count_if(follower.steps, from_slot), 0);
}

TEST(Lowering, OnlyAllgathersAreAmongAllLeaders) {
  const auto silent = [](int, int, int) { return PairExchange(); };
  const Shape shape = uniform_shape(NodeMap({0, 1}), 8, 1, 1);
  PairShape pairs;
  pairs.map = shape.map;
  pairs.send_offsets = pairs.receive_offsets = shape.receive_offsets;
  EXPECT_NO_THROW((void)lower_pairs(silent, pairs, Level::Smp, 0));
  EXPECT_THROW((void)lower_pairs(silent, pairs, Level::MultiLeader, 0), std::invalid_argument);
  Contents contents;
  contents.order = {0, 1};
  contents.region_bytes = {8, 8};
  EXPECT_NO_THROW((void)lower_contents({}, contents, shape, 0));
  contents.level = Level::MultiLeader;
  EXPECT_THROW((void)lower_contents({}, contents, shape, 0), std::invalid_argument);
}

std::vector<std::pair<int, int>> cut(const Transfer& transfer, Placement placement, int sender,
                                     int receiver) {
  std::vector<std::pair<int, int>> pieces;
  for (const Transfer& piece : contiguous_pieces(transfer, 8, placement, sender, receiver)) {
    pieces.emplace_back(piece.first, piece.count);
  }
  return pieces;
}

TEST(ContiguousPieces, AreCutWhereEitherMemoryWraps) {
  using Pieces = std::vector<std::pair<int, int>>;
  EXPECT_EQ(cut({1, 2, 3}, Placement::Absolute, 0, 1), (Pieces{{2, 3}}));
  EXPECT_EQ(cut({1, 6, 4}, Placement::Absolute, 0, 1), (Pieces{{6, 2}, {0, 2}}));
  EXPECT_EQ(cut({1, 6, 2}, Placement::Absolute, 0, 1), (Pieces{{6, 2}}));
  EXPECT_EQ(cut({1, 0, 8}, Placement::Absolute, 0, 1), (Pieces{{0, 8}}));
  EXPECT_EQ(cut({1, 6, 4}, Placement::Relative, 6, 4), (Pieces{{6, 4}}));
  EXPECT_EQ(cut({1, 6, 6}, Placement::Relative, 7, 1), (Pieces{{6, 1}, {7, 2}, {1, 3}}));
  EXPECT_EQ(cut({1, 6, 6}, Placement::Relative, 1, 7), (Pieces{{6, 1}, {7, 2}, {1, 3}}));
}

}  // namespace
}  // namespace allrail::schedule
