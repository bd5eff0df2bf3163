#include "coll/slots.hpp"

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace allrail::coll {
namespace {

SlotGeometry geometry_of_pages() {
  SlotGeometry geometry;
  geometry.small_slot_bytes = 16384;
  geometry.large_slot_bytes = 1 << 20;
  return geometry;
}

TEST(SlotRing, SmallCallsStreamOverAllSmallSlots) {
  const SlotGeometry geometry = geometry_of_pages();
  SlotRing ring(geometry);
  const auto slots = static_cast<std::uint64_t>(geometry.small_slots);
  for (std::uint64_t call = 1; call <= 3 * slots; ++call) {
    const SlotUse use = ring.take(8, call);
    EXPECT_EQ(use.number, static_cast<int>((call - 1) % slots));
    EXPECT_EQ(use.previous_call, call <= slots ? 0 : call - slots);
  }
}

TEST(SlotRing, ACallInBetweenTakesFourSmallSlots) {
  SlotRing ring(geometry_of_pages());
  EXPECT_EQ(ring.take(8, 1).number, 0);
  const SlotUse medium = ring.take(64 << 10, 2);
  EXPECT_EQ(medium.number, 4) << "they lie together, and slots 1 to 3 are left out";
  EXPECT_EQ(medium.previous_call, 0U);
  EXPECT_EQ(ring.take(8, 3).number, 8);
  EXPECT_EQ(ring.take((64 << 10) + 1, 4).number, 64) << "the first large one";
}

TEST(SlotRing, ACallInBetweenWaitsForTheNewestOfItsFour) {
  const SlotGeometry geometry = geometry_of_pages();
  SlotRing ring(geometry);
  std::uint64_t call = 0;
  while (call < 64) ring.take(8, ++call);
  EXPECT_EQ(ring.take(20000, ++call).previous_call, 4U);
  for (int i = 0; i < 15; ++i) ring.take(20000, ++call);
  for (int slot = 0; slot < 4; ++slot) {
    const SlotUse use = ring.take(8, ++call);
    EXPECT_EQ(use.number, slot);
    EXPECT_EQ(use.previous_call, 65U) << "slot " << slot << " was of that call, too";
  }
}

TEST(SlotRing, CallsInWhichNobodyGetsAheadStayInAFewSlots) {
  SlotRing ring(geometry_of_pages());
  std::uint64_t call = 0;
  while (call < 10) ring.take(8, ++call);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(ring.take(8, ++call, SlotOrder::Near).number, i % 8);
  }
  // Two in turn, of four each; others between them change nothing.
  EXPECT_EQ(ring.take(20000, ++call, SlotOrder::Near).number, 4);
  EXPECT_EQ(ring.take(20000, ++call, SlotOrder::Near).number, 0);
  EXPECT_EQ(ring.take(8, ++call, SlotOrder::Near).number, 4);
  EXPECT_EQ(ring.take(20000, ++call, SlotOrder::Near).number, 0);
  EXPECT_EQ(ring.take(8, ++call, SlotOrder::Near).previous_call, 113U);
  EXPECT_EQ(ring.take(8, ++call).number, 10) << "the ring is where it was";
}

TEST(SlotRing, CallsThatGoFarTakeOneSlotEachWhereTheyFit) {
  SlotRing ring(geometry_of_pages());
  std::uint64_t call = 0;
  for (int i = 0; i < 129; ++i) {
    ring.take(0, ++call, SlotOrder::Near);  // a barrier before each
    const SlotUse use = ring.take(16384, ++call, SlotOrder::Far);
    EXPECT_EQ(use.number, i % 64);
    if (i >= 72 && i < 128) {
      EXPECT_EQ(use.previous_call, call - 128) << "64 of both kinds ago";
    }
  }
  EXPECT_EQ(ring.take(16385, ++call, SlotOrder::Far).number, 4) << "four, behind slot 0";
  EXPECT_EQ(ring.take(16385, ++call, SlotOrder::Far).number, 8);
  EXPECT_EQ(ring.take((64 << 10) + 1, ++call, SlotOrder::Far).number, 64) << "the first large one";
}

/// Whatever calls come: who writes where another call's bytes or flags are waits for that call.
TEST(SlotRing, NoCallOverwritesOneThatItDoesNotWaitFor) {
  const SlotGeometry geometry = geometry_of_pages();
  const std::uint64_t large_begin =
      geometry.small_slot_bytes * static_cast<std::uint64_t>(geometry.small_slots);
  struct Used {
    std::uint64_t call, begin, end;
  };
  for (unsigned seed = 1; seed <= 50; ++seed) {
    std::mt19937 random(seed);
    SlotRing ring(geometry);
    std::vector<Used> used;
    for (std::uint64_t call = 1; call <= 400; ++call) {
      const std::uint64_t bytes = 1 + random() % (std::uint64_t{1} << (1 + random() % 20));
      const SlotOrder order =
          std::array{SlotOrder::Ring, SlotOrder::Near, SlotOrder::Far}[random() % 3];
      const SlotUse use = ring.take(bytes, call, order);
      const bool is_small = use.number < geometry.small_slots;
      const auto number = static_cast<std::uint64_t>(use.number);
      const std::uint64_t begin =
          is_small ? number * geometry.small_slot_bytes
                   : large_begin + (number - static_cast<std::uint64_t>(geometry.small_slots)) *
                                       geometry.large_slot_bytes;
      const Used mine{call, begin, begin + bytes};
      ASSERT_LE(mine.end, is_small ? large_begin : large_begin + 4 * geometry.large_slot_bytes);
      for (const Used& other : used) {
        const bool overlaps = mine.begin < other.end && other.begin < mine.end;
        ASSERT_TRUE(!overlaps || other.call <= use.previous_call)
            << "seed " << seed << ": call " << call << " and call " << other.call;
      }
      used.push_back(mine);
    }
  }
}

TEST(SlotGeometry, LeavesRoomForWhatStandsBesideTheSlots) {
  for (const std::uint64_t bytes : {1ULL << 20, 3ULL << 20, 64ULL << 20, 1ULL << 30}) {
    for (const int ranks : {1, 2, 7, 16, 64, 128, 500, 1024, 4096}) {
      for (const std::uint64_t directory : {0ULL, 300ULL * ranks}) {
        const std::uint64_t beside = bytes_beside_slots(ranks, directory);
        const std::uint64_t total =
            lay_out_segment(divide_node_memory(bytes, beside), ranks, directory).total_bytes;
        const std::uint64_t at_most = bytes + beside - std::min(beside, bytes / 2);
        EXPECT_LE(total, at_most) << ranks << " ranks, " << bytes << " bytes";
      }
    }
  }
}

TEST(SlotGeometry, OfFewRanksDoesNotDependOnTheirNumber) {
  const auto of_two = divide_node_memory(1 << 20, bytes_beside_slots(2, 0)).large_slot_bytes;
  const auto of_eight = divide_node_memory(1 << 20, bytes_beside_slots(8, 0)).large_slot_bytes;
  EXPECT_EQ(of_two, of_eight);
  EXPECT_LT(divide_node_memory(1 << 20, bytes_beside_slots(20, 0)).large_slot_bytes, of_eight);
}

TEST(SlotGeometry, DividesAnyNodeMemory) {
  for (const std::uint64_t bytes :
       {1ULL << 20, 5ULL << 20, 64ULL << 20, 1ULL << 30, 16ULL << 30, 1024ULL << 30}) {
    const SlotGeometry geometry = divide_node_memory(bytes, bytes);
    const auto small = static_cast<std::uint64_t>(geometry.small_slots);
    EXPECT_LE(small * geometry.small_slot_bytes + 4 * geometry.large_slot_bytes, bytes);
    EXPECT_GE(geometry.large_slot_bytes, geometry.most_in_small_ring());
    EXPECT_LE(geometry.large_slot_bytes, 1024ULL << 20) << "a put has 1,024 chunks of up to 1 MiB";
  }
}

}  // namespace
}  // namespace allrail::coll
