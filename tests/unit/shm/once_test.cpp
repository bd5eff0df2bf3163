// One rank does it, and the others see what it wrote.
#include "shm/once.hpp"

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

namespace allrail::shm {
namespace {

SegmentLayout layout_of(int ranks) {
  SegmentLayout layout;
  layout.ranks = ranks;
  layout.small_slots = 4;
  layout.small_slot_bytes = layout.large_slot_bytes = kPageBytes;
  return lay_out(layout);
}

TEST(Once, TheFirstHasTheTurnAndTheOthersWaitUntilItIsDone) {
  const std::vector<NodeSegment> ranks = NodeSegment::in_memory(layout_of(3));
  for (const std::uint64_t call : {1U, 5U, 6U}) {  // a word goes on where another call left it
    OnceWord& word = ranks[0].once(1);
    EXPECT_EQ(once_claimer(word, call), -1);
    EXPECT_EQ(take_once(ranks[2].once(1), call, 2), OnceTurn::Mine);
    EXPECT_EQ(once_claimer(word, call), 2);
    EXPECT_EQ(take_once(word, call, 0), OnceTurn::Other);
    finish_once(ranks[2], word, call);
    EXPECT_EQ(once_claimer(word, call), -1);
    EXPECT_EQ(take_once(word, call, 0), OnceTurn::Done);
    EXPECT_EQ(take_once(word, call, 1), OnceTurn::Done);
  }
  EXPECT_EQ(once_claimer(ranks[0].once(0), 1), -1) << "another slot";
}

TEST(Once, TheHighestRankOfTheLargestNodeIsNotTakenForDone) {
  const std::vector<NodeSegment> ranks = NodeSegment::in_memory(layout_of(1));
  OnceWord& word = ranks[0].once(0);
  EXPECT_EQ(take_once(word, 7, kMaxNodeRanks - 1), OnceTurn::Mine);
  EXPECT_EQ(take_once(word, 7, 0), OnceTurn::Other);
  EXPECT_EQ(once_claimer(word, 7), kMaxNodeRanks - 1);
}

TEST(Once, OfThreadsOneWritesAndAllSeeIt) {
  constexpr int kRanks = 4;
  constexpr std::uint64_t kCalls = 2000;
  const std::vector<NodeSegment> ranks = NodeSegment::in_memory(layout_of(kRanks));
  std::uint64_t result = 0;  // no atomic: the word orders it
  std::atomic<std::uint64_t> turns{0};
  std::atomic<std::uint64_t> wrong{0};
  std::barrier round(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const NodeSegment& mine = ranks[static_cast<std::size_t>(rank)];
      for (std::uint64_t call = 1; call <= kCalls; ++call) {
        OnceWord& word = mine.once(static_cast<int>(call % 4));
        OnceTurn turn = take_once(word, call, rank);
        if (turn == OnceTurn::Mine) {
          ++turns;
          result = call;
          finish_once(mine, word, call);
        } else {
          for (; turn == OnceTurn::Other; turn = take_once(word, call, rank)) sched_yield();
        }
        wrong += result == call ? 0 : 1;
        round.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(turns, kCalls);
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace allrail::shm
