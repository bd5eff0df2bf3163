// What a segment holds once it is there: slots, flags, the abort word.
#include "shm/segment.hpp"

#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <numa.h>
#include <numaif.h>
#include <sys/wait.h>
#include <unistd.h>

#include "include/allrail/error.hpp"
#include "shm/header.hpp"
#include "shm/wait.hpp"

namespace allrail::shm {
namespace {

SegmentLayout layout_for(int ranks) {
  SegmentLayout request;
  request.ranks = ranks;
  request.small_slot_bytes = 4096;
  request.large_slot_bytes = 64 << 10;
  return lay_out(request);
}

TEST(SegmentTest, views_show_the_same_memory) {
  auto views = NodeSegment::in_memory(layout_for(3));
  ASSERT_EQ(views.size(), 3U);
  EXPECT_EQ(views[0].attached_count(), 3);
  std::memcpy(views[0].large_slot(3), "hello", 5);
  EXPECT_EQ(std::memcmp(views[2].large_slot(3), "hello", 5), 0);
  EXPECT_EQ(views[0].offset_of(views[0].large_slot(3)), views[1].offset_of(views[1].large_slot(3)));
  EXPECT_EQ(views[0].bytes().size(), views[0].layout().total_bytes);
}

TEST(SegmentTest, every_word_has_its_own_place) {
  auto views = NodeSegment::in_memory(layout_for(5));
  const NodeSegment& segment = views[0];
  std::set<const void*> seen;
  for (int slot = 0; slot < segment.layout().slots(); ++slot) {
    for (int rank = 0; rank < 5; ++rank) {
      EXPECT_TRUE(seen.insert(&segment.flag(slot, rank)).second);
      EXPECT_EQ(segment.flag(slot, rank).value.load(), 0U);
    }
  }
  for (int from = 0; from < 5; ++from) {
    EXPECT_TRUE(seen.insert(&segment.line(from)).second);
    EXPECT_EQ(segment.line(from).rank.load(), -1);
    EXPECT_EQ(segment.line(from).state.load(), RankState::Joining);
    for (int to = 0; to < 5; ++to) EXPECT_TRUE(seen.insert(&segment.local_puts(from, to)).second);
  }
  for (int slot = 0; slot < 16; ++slot) EXPECT_TRUE(seen.insert(segment.small_slot(slot)).second);
  for (int slot = 0; slot < 4; ++slot) EXPECT_TRUE(seen.insert(segment.large_slot(slot)).second);
}

TEST(SegmentTest, parts_prefer_their_memory) {
  if (::numa_available() < 0) GTEST_SKIP() << "this kernel knows no memories";
  const SegmentLayout layout = layout_for(2);
  const std::string name = NodeSegment::make_name(0x5eed);
  const MemoryPart part{layout.large_slots_offset, 32 << 10, 0};
  const NodeSegment segment = NodeSegment::create(name, layout, {&part, 1});
  const auto policy_at = [&](std::uint64_t offset) {
    int policy = -1;
    EXPECT_EQ(::get_mempolicy(&policy, nullptr, 0, segment.bytes().data() + offset, MPOL_F_ADDR),
              0);
    return policy;
  };
  EXPECT_EQ(policy_at(part.offset), MPOL_PREFERRED);
  EXPECT_EQ(policy_at(part.offset + part.bytes - 1), MPOL_PREFERRED);
  EXPECT_NE(policy_at(part.offset + part.bytes + kPageBytes), MPOL_PREFERRED);
  EXPECT_NE(policy_at(layout.small_slots_offset), MPOL_PREFERRED);
}

TEST(SegmentTest, a_memory_that_is_not_there_is_no_error) {
  const SegmentLayout layout = layout_for(2);
  const MemoryPart parts[] = {{layout.large_slots_offset, 4096, 63},
                              {layout.large_slots_offset, 4096, -1},
                              {layout.large_slots_offset, 4096, 1'000'000}};
  NodeSegment::create(NodeSegment::make_name(0x5eee), layout, parts).large_slot(0)[0] =
      std::byte{1};
}

TEST(SegmentTest, flags_carry_stamp_and_done) {
  auto views = NodeSegment::in_memory(layout_for(2));
  raise(views[0], 17, 1, flag_value(9, 2), 77, 8);
  const Flag& flag = views[1].flag(17, 1);
  EXPECT_TRUE(reached(flag, flag_value(9, 2)));
  EXPECT_TRUE(reached(flag, flag_value(8, 65535)));
  EXPECT_FALSE(reached(flag, flag_value(9, 3)));
  EXPECT_EQ(flag.stamp.load(), 77U);
  EXPECT_EQ(flag.done.load(), 8U);
}

TEST(AbortTest, nothing_at_first) {
  auto views = NodeSegment::in_memory(layout_for(1));
  EXPECT_FALSE(views[0].aborted());
  EXPECT_TRUE(views[0].abort_record().text.empty());
}

TEST(AbortTest, long_texts_are_cut) {
  auto views = NodeSegment::in_memory(layout_for(1));
  EXPECT_TRUE(views[0].set_abort(6, 3, std::string(5000, 'x')));
  EXPECT_EQ(views[0].abort_record().text, std::string(kMaxAbortText, 'x'));
  EXPECT_EQ(views[0].abort_record().code, 6);
  EXPECT_EQ(views[0].abort_record().peer, 3);
}

TEST(AbortTest, the_first_writer_wins_and_all_read_the_same) {
  for (int round = 0; round < 200; ++round) {
    constexpr int kRanks = 6;
    auto views = NodeSegment::in_memory(layout_for(kRanks));
    std::atomic<int> winners{0};
    std::vector<AbortRecord> records(kRanks);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        const std::string text(static_cast<std::size_t>(50 + rank), static_cast<char>('a' + rank));
        if (views[static_cast<std::size_t>(rank)].set_abort(rank, rank + 100, text)) ++winners;
        EXPECT_TRUE(views[static_cast<std::size_t>(rank)].aborted());
        records[static_cast<std::size_t>(rank)] =
            views[static_cast<std::size_t>(rank)].abort_record();
      });
    }
    for (auto& rank : ranks) rank.join();
    ASSERT_EQ(winners.load(), 1);
    for (const AbortRecord& record : records) {
      ASSERT_EQ(record.text, std::string(static_cast<std::size_t>(50 + record.code),
                                         static_cast<char>('a' + record.code)));
      ASSERT_EQ(record.text, records[0].text);
      ASSERT_EQ(record.peer, record.code + 100);
    }
  }
}

TEST(AbortTest, a_writer_that_dies_while_it_tells_still_aborts) {
  auto views = NodeSegment::in_memory(layout_for(1));
  views[0].header().abort_state.store(static_cast<std::uint32_t>(AbortState::Claimed));
  EXPECT_TRUE(views[0].aborted());
  EXPECT_EQ(views[0].abort_record().code, static_cast<int>(Code::PeerLost));
  EXPECT_FALSE(views[0].abort_record().text.empty());
}

TEST(SegmentTest, a_forked_child_keeps_the_name_of_its_parent) {
  const std::string name = NodeSegment::make_name(0xf0f0 + static_cast<std::uint64_t>(::getpid()));
  const SegmentLayout layout = layout_for(2);
  NodeSegment creator = NodeSegment::create(name, layout);
  const pid_t child = ::fork();
  if (child == 0) {
    { const NodeSegment inherited = std::move(creator); }
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_NO_THROW(NodeSegment::attach(name, layout));
}

}  // namespace
}  // namespace allrail::shm
