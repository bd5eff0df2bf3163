#include "shm/layout.hpp"

#include <gtest/gtest.h>

#include "include/allrail/error.hpp"
#include "shm/header.hpp"

namespace allrail::shm {
namespace {

TEST(LayoutTest, areas_follow_each_other_without_overlap) {
  for (const int ranks : {1, 2, 3, 7, 64, 129}) {
    SegmentLayout request;
    request.ranks = ranks;
    request.small_slot_bytes = 5000;
    request.large_slot_bytes = 3 << 20;
    const SegmentLayout layout = lay_out(request);
    const auto count = static_cast<std::uint64_t>(ranks);
    EXPECT_GE(layout.lines_offset, kHeaderOffset + sizeof(SegmentHeader));
    EXPECT_GE(layout.flags_offset, layout.lines_offset + count * sizeof(RankLine));
    const auto slots = static_cast<std::uint64_t>(layout.slots());
    const auto small_slots = static_cast<std::uint64_t>(layout.small_slots);
    EXPECT_GE(layout.once_offset, layout.flags_offset + slots * count * sizeof(Flag));
    EXPECT_GE(layout.local_puts_offset, layout.once_offset + slots * sizeof(OnceWord));
    EXPECT_GE(layout.local_puts_row, count * 8);
    EXPECT_GE(layout.small_slots_offset, layout.local_puts_offset + count * layout.local_puts_row);
    EXPECT_GE(layout.small_slot_stride, layout.small_slot_bytes);
    EXPECT_GE(layout.large_slots_offset,
              layout.small_slots_offset + small_slots * layout.small_slot_stride);
    EXPECT_GE(layout.total_bytes, layout.large_slots_offset + 4 * layout.large_slot_stride);
    EXPECT_EQ(layout.lines_offset % alignof(RankLine), 0U);
    EXPECT_EQ(layout.flags_offset % alignof(Flag), 0U);
    EXPECT_EQ(layout.once_offset % alignof(OnceWord), 0U);
    EXPECT_EQ(layout.local_puts_row % 64, 0U);
    EXPECT_EQ(layout.small_slots_offset % kPageBytes, kPageBytes / 2);
    EXPECT_EQ(layout.large_slots_offset % kPageBytes, kPageBytes / 2);
    EXPECT_EQ(layout.total_bytes % kPageBytes, 0U);
  }
}

TEST(LayoutTest, is_a_pure_function) {
  SegmentLayout request;
  request.ranks = 3;
  request.small_slot_bytes = 1;
  EXPECT_EQ(lay_out(request), lay_out(lay_out(request)));
}

TEST(LayoutTest, absurd_requests_are_refused) {
  SegmentLayout request;
  request.ranks = 0;
  EXPECT_THROW(lay_out(request), Error);
  request.ranks = kMaxNodeRanks + 1;
  EXPECT_THROW(lay_out(request), Error);
  request.ranks = 2;
  request.large_slots = -1;
  EXPECT_THROW(lay_out(request), Error);
  request.large_slots = 4;
  request.large_slot_bytes = ~std::uint64_t{0};
  EXPECT_THROW(lay_out(request), Error);
}

}  // namespace
}  // namespace allrail::shm
