// What a job makes of the places of its ranks: the same leaders on all ranks, as many on every
// node, everybody in one group, and schedules that are right.
#include "coll/roster.hpp"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "coll/allgather/allgather.hpp"
#include "coll/plan.hpp"
#include "coll/schedule/replay.hpp"
#include "coll/slots.hpp"
#include "tests/property/schedule/random_shape.hpp"

namespace allrail::coll {
namespace {

using schedule::testing::Generator;
using topology::LeaderPolicy;
using topology::RankPlace;

constexpr LeaderPolicy kPolicies[] = {LeaderPolicy::Near, LeaderPolicy::Socket,
                                      LeaderPolicy::Packed};

std::vector<RankPlace> random_places(Generator& generator, int ranks) {
  std::vector<RankPlace> places(static_cast<std::size_t>(ranks));
  for (RankPlace& place : places) {
    if (generator.number(0, 9) > 0)
      place.domain = static_cast<std::uint8_t>(generator.number(0, 3));
    if (generator.number(0, 4) == 0) continue;
    place.rail_levels = static_cast<std::uint8_t>(generator.number(0, 2));
    place.near_rails = static_cast<std::uint8_t>(generator.number(1, 3));
  }
  return places;
}

TEST(Roster, GroupsByOrderWhereNothingIsKnown) {
  Roster roster(schedule::NodeMap({0, 0, 1, 1}), 0);
  EXPECT_EQ(roster.grouping(2), nullptr);
  const std::vector<RankPlace> alike(4, RankPlace{0, 0, 3});
  roster.elect_by(LeaderPolicy::Near, alike);
  EXPECT_EQ(roster.grouping(2), nullptr) << "all alike";
  EXPECT_EQ(roster.natural_leaders(), 2) << "two rails are near";
  roster.elect_by(LeaderPolicy::Socket, alike);
  EXPECT_EQ(roster.natural_leaders(), 1);
}

TEST(Roster, AsksForWhatTheNodeWithMostSocketsHas) {
  Roster roster(schedule::NodeMap({0, 1, 1, 1, 2, 2}), 0);
  const std::vector<RankPlace> places{{0}, {0}, {1}, {2}, {3}, {3}};
  roster.elect_by(LeaderPolicy::Socket, places);
  EXPECT_EQ(roster.natural_leaders(), 3);
  const auto grouping = roster.grouping(3);
  ASSERT_NE(grouping, nullptr);
  EXPECT_EQ(grouping->lanes, 3);
  // Local ranks: the only one of node 0 leads three times, node 2 has two for three.
  EXPECT_EQ(grouping->leaders, (std::vector<std::int32_t>{0, 0, 0, 0, 1, 2, 0, 0, 1}));
  EXPECT_EQ(roster.grouping(99)->lanes, 3) << "no more than the largest node has ranks";
}

TEST(Roster, OneLeaderIsElectedToo) {
  Roster roster(schedule::NodeMap({0, 0, 1, 1}), 0);
  const std::vector<RankPlace> places{{0, 1, 1}, {1, 0, 1}, {0, 1, 1}, {1, 0, 1}};
  roster.elect_by(LeaderPolicy::Near, places);
  const auto grouping = roster.grouping(1);
  ASSERT_NE(grouping, nullptr);
  EXPECT_EQ(grouping->leaders, (std::vector<std::int32_t>{1, 1}));
}

TEST(Roster, NeedsNoLeadersOnOneNode) {
  Roster roster(schedule::NodeMap({0, 0}), 0);
  const std::vector<RankPlace> places{{0}, {1}};
  roster.elect_by(LeaderPolicy::Socket, places);
  EXPECT_EQ(roster.grouping(2), nullptr);
}

TEST(Roster, AllRanksGroupAlikeAndSchedulesAreRightOnAnyMap) {
  for (std::uint64_t seed = 1; seed <= 150; seed += schedule::testing::kOneOf) {
    Generator generator(seed);
    const int ranks = generator.number(2, 24);
    const auto map = schedule::testing::random_map(generator, ranks);
    const auto places = random_places(generator, ranks);
    const int leaders = generator.number(1, 8);
    for (const LeaderPolicy policy : kPolicies) {
      const std::string what =
          "seed " + std::to_string(seed) + ", policy " + topology::leader_policy_name(policy);
      Roster first(map, 0);
      first.elect_by(policy, places);
      const auto grouping = first.grouping(leaders);
      if (grouping == nullptr) continue;
      for (int rank = 1; rank < ranks; ++rank) {
        Roster other(map, rank);
        other.elect_by(policy, places);
        ASSERT_EQ(other.natural_leaders(), first.natural_leaders()) << what;
        const auto same = other.grouping(leaders);
        ASSERT_EQ(same->lanes, grouping->lanes) << what;
        ASSERT_EQ(same->lane_of, grouping->lane_of) << what << ", rank " << rank;
        ASSERT_EQ(same->leaders, grouping->leaders) << what << ", rank " << rank;
      }
      ASSERT_EQ(grouping->lanes, std::min(leaders, map.largest_node)) << what;
      auto shape =
          schedule::testing::random_shape(generator, map, generator.number(1, 3), leaders, 24);
      shape.grouping = grouping;
      ASSERT_NO_THROW(schedule::check_shape(shape, 0)) << what;
      for (const auto& algorithm : allgather::algorithms()) {
        if (algorithm.level == schedule::Level::Flat) continue;
        const auto call = schedule::testing::make_call(algorithm, shape);
        const auto violations = schedule::replay({&call, 1}, {.seed = seed});
        ASSERT_TRUE(violations.empty())
            << what << ": " << schedule::testing::describe(algorithm, shape, seed)
            << schedule::testing::sentences(violations);
      }
    }
  }
}

/// Two nodes of four ranks, two on each of two sockets.
struct TwoSockets {
  TwoSockets() {
    for (int rank = 0; rank < 8; ++rank) {
      rosters.emplace_back(map, rank).elect_by(LeaderPolicy::Socket, places);
    }
  }
  schedule::ReplayCall call(std::uint64_t bytes, const PlanLimits& limits) {
    PlanRequest request;
    request.algorithm = "smp-ring";
    request.leaders = 2;
    request.bytes.assign(8, bytes);
    for (std::uint64_t rank = 0; rank < 8; ++rank) request.receive_offsets.push_back(rank * bytes);
    std::vector<schedule::Schedule> schedules;
    for (const Roster& roster : rosters) {
      const CallPlan plan(request, roster, limits);
      slices = plan.slices();
      slice_bytes = slices > 1 ? plan.slice_begin(1) : bytes;
      slot_bytes = plan.slot_bytes();
      schedules.push_back(plan.first());
    }
    auto shape = schedule::uniform_shape(map, bytes, 1, 2);
    for (auto& block : shape.bytes) block = std::min(block, slice_bytes);
    return {std::move(shape), std::move(schedules)};
  }

  schedule::NodeMap map{{0, 0, 0, 0, 1, 1, 1, 1}};
  std::vector<RankPlace> places{{1}, {0}, {1}, {0}, {0}, {1}, {0}, {1}};
  std::vector<Roster> rosters;
  std::uint64_t slices = 0;
  std::uint64_t slice_bytes = 0;
  std::uint64_t slot_bytes = 0;
};

constexpr PlanLimits kSlots{64 << 10, UINT64_MAX, UINT64_MAX, UINT64_MAX, 0, 4 << 10};

TEST(LaneMemory, LanesBeginWhereTheirPartOfALargeSlotDoes) {
  for (const std::uint64_t bytes : {3000, 20'000}) {  // in one slice, and in several
    TwoSockets job;
    const auto call = job.call(bytes, kSlots);
    EXPECT_EQ(job.slices > 1, bytes == 20'000);
    EXPECT_EQ(job.slot_bytes, kSlots.large_slot_bytes);
    for (int rank = 0; rank < 8; ++rank) {
      const std::uint64_t part = 32ULL << 10;
      const bool first = job.places[static_cast<std::size_t>(rank)].domain == 0;
      for (const auto& step : call.schedules[static_cast<std::size_t>(rank)].steps) {
        if (step.kind != schedule::StepKind::Put && step.kind != schedule::StepKind::Stamp)
          continue;
        EXPECT_EQ(step.to_offset < part, first) << "rank " << rank;
      }
    }
    const auto violations = schedule::replay({&call, 1}, {});
    EXPECT_TRUE(violations.empty()) << schedule::testing::sentences(violations);
  }
}

TEST(LaneMemory, SmallSlotsAreNotDivided) {
  TwoSockets job;
  const auto call = job.call(100, kSlots);
  EXPECT_LE(job.slot_bytes, kSlots.small_slot_bytes);
}

TEST(LaneMemory, SlotsThatCannotBeDividedAreNot) {
  TwoSockets job;
  PlanLimits tight = kSlots;
  tight.large_slot_bytes = 7 << 10;  // a page for each lane, and headers alone would fit
  job.call(100'000, tight);
  EXPECT_GT(job.slices, 1U);
  tight.large_slot_bytes = 6 << 8;  // not even that
  job.call(100'000, tight);
  EXPECT_LE(job.slot_bytes, tight.large_slot_bytes);
}

TEST(LaneMemory, EveryLaneOfEveryLargeSlotIsAPart) {
  shm::SegmentLayout layout;
  layout.ranks = 4;
  layout.small_slot_bytes = 4096;
  layout.large_slot_bytes = 9 * 4096;
  layout = shm::lay_out(layout);
  const std::vector<int> memories{1, -1, 3};
  const auto parts = lane_parts(layout, memories);
  ASSERT_EQ(parts.size(), 8U) << "two lanes of four slots have a memory";
  EXPECT_EQ(parts[0].offset, layout.large_slots_offset);
  EXPECT_EQ(parts[0].bytes, lane_bytes(layout.large_slot_bytes, 3));
  EXPECT_EQ(parts[0].memory, 1);
  EXPECT_EQ(parts[1].offset, layout.large_slots_offset + 2 * parts[0].bytes);
  EXPECT_EQ(parts[1].memory, 3);
  EXPECT_EQ(parts[7].offset,
            layout.large_slots_offset + 3 * layout.large_slot_stride + 2 * parts[0].bytes);
  for (const auto& part : parts) EXPECT_EQ(part.offset % shm::kPageBytes, shm::kPageBytes / 2);
}

}  // namespace
}  // namespace allrail::coll
