#include "shm/wait.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/clock.hpp"

namespace allrail::shm {
namespace {

// A look costs about 40 ns with the pause, 0.5 us with the yield, which returns at once where
// nobody else wants the core. Cores that look free to a rank may be shared with other jobs or, in
// virtual nodes and containers, with ranks that it cannot see, so even a rank with its own core
// spins only for the time of a short exchange.
constexpr int kSpinsOnOwnCore = 256;
constexpr int kYieldsOnOwnCore = 1'000;
constexpr std::int64_t kLongYieldNs = 1'000'000;
constexpr int kYieldsWhenOutnumbered = 1'000;

int membarrier(int command) noexcept {
  return static_cast<int>(::syscall(__NR_membarrier, command, 0, 0));
}

/// Registered once per process; a forked child inherits it.
bool registered() noexcept {
  static const bool result = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0 &&
                             membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0;
  return result;
}

void full_fence() noexcept {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  // The words on both sides are atomics, so a thread sanitizer loses nothing by not knowing fences.
  std::atomic_thread_fence(std::memory_order_seq_cst);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}

/// Not private: the word lies in memory that processes share.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, int timeout_ms) noexcept {
  timespec timeout{timeout_ms / 1000, static_cast<long>(timeout_ms % 1000) * 1'000'000};
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, value, &timeout,
            nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) noexcept {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr,
            nullptr, 0);
}

}  // namespace

WaitPolicy WaitPolicy::choose(bool outnumbered) noexcept {
  // What is awaited needs the core: one look is enough.
  if (outnumbered) return {0, kYieldsWhenOutnumbered};
  return {kSpinsOnOwnCore, kYieldsOnOwnCore};
}

void SharedCore::found_others(std::int64_t took_ns, std::int64_t now_ns) noexcept {
  found_ = std::min(found_ + kFoundByLongYield, kMostFound);
  if (took_ns > kLongYieldNs && !among_ranks_) {
    skips_ = skips_after_slice_;
    skips_after_slice_ = std::min(2 * skips_after_slice_, kMostSkips);
  }
  home_.crowded(now_ns);
}

bool yield_core(SharedCore& core) noexcept {
  if (core.skips_yield()) return false;
  const std::int64_t before_ns = base::now_ns();
  ::sched_yield();
  const std::int64_t now_ns = base::now_ns();
  const std::int64_t took_ns = now_ns - before_ns;
  core.yielded(took_ns, now_ns);
  return took_ns <= kLongYieldNs;
}

Backoff::Backoff(const WaitPolicy& policy, SharedCore& core) noexcept
    : policy_(policy), core_(core) {
  if (core.is_likely()) policy_.spins = std::min(policy_.spins, kSpinsOnSharedCore);
}

bool Backoff::pause() noexcept {
  const std::uint32_t count = count_++;
  if (count < static_cast<std::uint32_t>(policy_.spins)) {
    pause_processor();
    return false;
  }
  if (count <
      static_cast<std::uint32_t>(policy_.spins) + static_cast<std::uint32_t>(policy_.yields)) {
    if (!yield_core(core_)) tire();
    return false;
  }
  return true;
}

bool sleeps_by_membarrier() noexcept { return registered(); }

void enable_sleep(const NodeSegment& segment) noexcept {
  if (!registered()) segment.header().sleepers.fetch_add(1, std::memory_order_seq_cst);
}

void wake_sleepers(const NodeSegment& segment) noexcept {
  full_fence();
  for (int rank = 0; rank < segment.ranks(); ++rank) {
    std::atomic<std::uint32_t>& word = segment.line(rank).sleeping;
    if (word.load(std::memory_order_relaxed) == 0) continue;
    word.store(0, std::memory_order_relaxed);
    futex_wake(word);
  }
}

Sleeper::Sleeper(const NodeSegment& segment, int local_rank) noexcept
    : segment_(segment), line_(segment.line(local_rank)) {
  line_.sleeping.store(1, std::memory_order_relaxed);
  segment_.header().sleepers.fetch_add(1, std::memory_order_seq_cst);
  // From here on every store of another rank is visible to us, or that rank sees that we sleep.
  if (!registered() || membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0) full_fence();
}

Sleeper::~Sleeper() {
  line_.sleeping.store(0, std::memory_order_relaxed);
  segment_.header().sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void Sleeper::sleep(int timeout_ms) noexcept {
  futex_wait(line_.sleeping, 1, std::clamp(timeout_ms, 0, kMaxSleepMs));
}

}  // namespace allrail::shm
