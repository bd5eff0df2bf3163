// A gather and broadcast over the node segment, written as the executor does it: concurrent copies
// in, one flag per rank, concurrent copies out, and a slot ring guarded by `done`.
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/segment.hpp"
#include "shm/wait.hpp"

namespace allrail::shm {
namespace {

constexpr std::size_t kBlockBytes = 96;

std::byte content(std::uint64_t call, int rank, std::size_t at) {
  return static_cast<std::byte>(call * 31 + static_cast<std::uint64_t>(rank) * 7 + at);
}

class Exchange {
 public:
  Exchange(const NodeSegment& segment, int rank, WaitPolicy policy)
      : segment_(segment), rank_(rank), policy_(policy), noise_(static_cast<unsigned>(rank)) {}

  /// Number of wrong bytes over `calls` allgathers.
  std::uint64_t run(std::uint64_t calls) {
    std::uint64_t wrong = 0;
    for (std::uint64_t call = 1; call <= calls; ++call) wrong += allgather(call);
    return wrong;
  }

 private:
  template <class Ready>
  void await(Ready&& ready) {
    Backoff backoff(policy_, core_);
    while (!ready()) {
      if (backoff.pause()) sleep_until(segment_, rank_, ready, kMaxSleepMs);
    }
  }

  std::uint64_t allgather(std::uint64_t call) {
    const int ring = segment_.layout().small_slots;
    const int slot = static_cast<int>(call % static_cast<std::uint64_t>(ring));
    // The slot was used by call - ring: everybody must be done with it.
    await([&] {
      for (int rank = 0; rank < segment_.ranks(); ++rank) {
        if (segment_.line(rank).done.load(std::memory_order_acquire) +
                static_cast<std::uint64_t>(ring) <
            call) {
          return false;
        }
      }
      return true;
    });
    std::byte* const mine =
        segment_.small_slot(slot) + static_cast<std::size_t>(rank_) * kBlockBytes;
    for (std::size_t at = 0; at < kBlockBytes; ++at) mine[at] = content(call, rank_, at);
    disturb();
    raise(segment_, slot, rank_, flag_value(call, 1), call * 1000,
          segment_.line(rank_).done.load());
    std::uint64_t wrong = 0;
    for (int rank = 0; rank < segment_.ranks(); ++rank) {
      const Flag& flag = segment_.flag(slot, rank);
      await([&] { return reached(flag, flag_value(call, 1)); });
      wrong += flag.stamp.load(std::memory_order_relaxed) != call * 1000;
      const std::byte* const block =
          segment_.small_slot(slot) + static_cast<std::size_t>(rank) * kBlockBytes;
      for (std::size_t at = 0; at < kBlockBytes; ++at)
        wrong += block[at] != content(call, rank, at);
    }
    disturb();
    segment_.line(rank_).done.store(call, std::memory_order_release);
    notify(segment_);
    return wrong;
  }

  void disturb() {
    const unsigned draw = static_cast<unsigned>(noise_() % 256);
    if (draw < 16) ::sched_yield();
    if (draw == 16) ::usleep(static_cast<useconds_t>(noise_() % 200));
  }

  const NodeSegment& segment_;
  int rank_;
  WaitPolicy policy_;
  SharedCore core_{-1};
  std::mt19937 noise_;
};

SegmentLayout layout_of(int ranks, int small_slots) {
  SegmentLayout request;
  request.ranks = ranks;
  request.small_slots = small_slots;
  request.small_slot_bytes = static_cast<std::uint64_t>(ranks) * kBlockBytes;
  request.large_slots = 0;
  return lay_out(request);
}

std::uint64_t run_threads(int ranks, int small_slots, WaitPolicy policy, std::uint64_t calls) {
  auto views = NodeSegment::in_memory(layout_of(ranks, small_slots));
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      wrong += Exchange(views[static_cast<std::size_t>(rank)], rank, policy).run(calls);
    });
  }
  for (auto& thread : threads) thread.join();
  return wrong.load();
}

TEST(NodeExchangeTest, two_threads_that_spin) {
  EXPECT_EQ(run_threads(2, 16, {2000, 1000}, 20'000), 0U);
}
TEST(NodeExchangeTest, five_threads_that_yield) {
  EXPECT_EQ(run_threads(5, 4, {0, 1000}, 5'000), 0U);
}
TEST(NodeExchangeTest, four_threads_that_sleep_at_once) {
  EXPECT_EQ(run_threads(4, 2, {0, 0}, 2'000), 0U);
}

TEST(NodeExchangeTest, processes_that_attach_by_name) {
  constexpr int kRanks = 4;
  const SegmentLayout layout = layout_of(kRanks, 3);
  const std::string name =
      NodeSegment::make_name(0xe0000000U + static_cast<std::uint64_t>(::getpid()));
  NodeSegment creator = NodeSegment::create(name, layout);
  std::vector<pid_t> children;
  for (int rank = 1; rank < kRanks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      const NodeSegment mine = NodeSegment::attach(name, layout);
      ::_exit(Exchange(mine, rank, {10, 50}).run(10'000) == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  EXPECT_EQ(Exchange(creator, 0, {10, 50}).run(10'000), 0U);
  creator.unlink();
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace allrail::shm
