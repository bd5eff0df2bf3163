// How ranks of a node wait for each other: spin, then yield, then sleep.
//
// A sleeper must not miss a flag that is raised while it falls asleep. It says that it sleeps, runs
// membarrier(2), which puts a full fence into every running rank, looks at the flag once more and
// only then sleeps. So the rank that raises a flag needs no fence: it pays one plain load.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/header.hpp"
#include "shm/home_cpu.hpp"
#include "shm/segment.hpp"

namespace allrail::shm {

/// No sleep is longer, so that deaths and aborts are noticed.
inline constexpr int kMaxSleepMs = 50;

/// A moment for the other thread of this core, and no speculation beyond.
inline void pause_processor() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

/// A rank whose core is likely shared looks no more often before it yields.
inline constexpr int kSpinsOnSharedCore = 4;

struct WaitPolicy {
  int spins = 0;   // looks with a pause between
  int yields = 0;  // looks with sched_yield(2) between
  /// `outnumbered`: the node has more ranks than cores, so a rank that spins keeps another from
  /// doing what it waits for.
  static WaitPolicy choose(bool outnumbered) noexcept;
  /// Whether it is for a rank with a core of its own.
  bool has_own_core() const noexcept { return spins > kSpinsOnSharedCore; }
};

/// Whether others want the core that this rank waits on: a yield takes long then. Cores that look
/// free to a rank may be shared with other jobs or, in virtual nodes and containers, with ranks
/// that it cannot see.
class SharedCore {
 public:
  /// `home_cpu`: where this rank waits if others want its core; -1: nowhere in particular.
  /// `among_ranks`: these are ranks of the job, and what they do meanwhile is what it waits for.
  explicit SharedCore(int home_cpu, bool among_ranks = false) noexcept
      : among_ranks_(among_ranks), home_(home_cpu) {}
  void yielded(std::int64_t took_ns, std::int64_t now_ns) noexcept {
    if (took_ns > kSwitchNs) {
      found_others(took_ns, now_ns);
    } else {
      skips_after_slice_ = kLeastSkips;
      if (found_ != 0) --found_;
    }
  }
  bool is_likely() const noexcept { return found_ > kFoundByInterrupts; }
  /// Whether the next yield is better left out, since one before it gave a time slice to another
  /// program: each time for more yields, until one costs none.
  bool skips_yield() noexcept {
    if (skips_ == 0) return false;
    --skips_;
    return true;
  }

 private:
  // A yield that finds nobody takes 0.5 us; one switch there and back takes more than this.
  static constexpr std::int64_t kSwitchNs = 2'000;
  // An interrupt makes a yield long now and then, and the next one, too; where others want the core
  // more than one in nine are. A long one counts as so many, up to a limit, and a short one takes
  // one off.
  static constexpr int kFoundByLongYield = 8;
  static constexpr int kFoundByInterrupts = 2 * kFoundByLongYield;
  static constexpr int kMostFound = 256;
  static constexpr int kLeastSkips = 16;
  static constexpr int kMostSkips = 4096;
  void found_others(std::int64_t took_ns, std::int64_t now_ns) noexcept;

  bool among_ranks_;
  int found_ = 0;
  int skips_ = 0;
  int skips_after_slice_ = kLeastSkips;
  HomeCpu home_;
};

/// Yields once. False: another program had the core, or would have it, and each further yield would
/// give it a whole time slice, while a sleeper that is woken runs at once.
bool yield_core(SharedCore& core) noexcept;

/// What a call waits until it is given to the queue of calls: some spins for each thing that is
/// awaited, and some yields for all of them.
class ShortWait {
 public:
  ShortWait(int spins, int yields, SharedCore& core) noexcept
      : core_(core), most_spins_(spins), spins_(spins), yields_(yields) {}
  /// Something else is awaited.
  void renew_spins() noexcept { spins_ = most_spins_; }
  /// Passes a moment; false: the wait is long, or would be.
  bool pass() noexcept {
    if (spins_-- > 0) {
      pause_processor();
      return true;
    }
    if (yields_ == 0) return false;
    --yields_;
    if (yield_core(core_)) return true;
    yields_ = 0;
    took_long_ = true;
    return false;
  }
  /// Another program had the core meanwhile, or would have had it.
  bool took_long() const noexcept { return took_long_; }

 private:
  SharedCore& core_;
  int most_spins_;
  int spins_;
  int yields_;
  bool took_long_ = false;
};

/// One wait. `while (!ready()) if (backoff.pause()) sleep_until(...)`.
class Backoff {
 public:
  Backoff(const WaitPolicy& policy, SharedCore& core) noexcept;
  /// Passes a moment; true: enough, sleep now. Stays true until restart().
  bool pause() noexcept;
  void restart() noexcept { count_ = 0; }
  /// Neither spins nor yields any more.
  void tire() noexcept { count_ = static_cast<std::uint32_t>(policy_.spins + policy_.yields); }
  /// True once every 1024 calls of pause(): time for slow checks, such as deaths and deadlines.
  bool slow_check_due() const noexcept { return (count_ & 1023U) == 1023U; }

 private:
  WaitPolicy policy_;
  SharedCore& core_;
  std::uint32_t count_ = 0;
};

/// Prepares this process to be woken without fences (membarrier); once per process and segment,
/// after create() or attach().
void enable_sleep(const NodeSegment& segment) noexcept;
/// Whether sleepers of this process use membarrier(2); false: fences on both sides.
bool sleeps_by_membarrier() noexcept;

/// Wakes every sleeping rank of the node. The slow half of notify().
void wake_sleepers(const NodeSegment& segment) noexcept;

/// To be called after every store that another rank may sleep for. One load where nobody sleeps.
inline void notify(const NodeSegment& segment) noexcept {
  // The compiler must not move the load above the store; the processor may, see membarrier above.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (segment.header().sleepers.load(std::memory_order_relaxed) != 0) wake_sleepers(segment);
}

/// Raises this rank's flag of a slot. Everything written before is visible to whoever sees it.
inline void raise(const NodeSegment& segment, int slot_number, int local_rank, std::uint64_t value,
                  std::uint64_t stamp, std::uint64_t done) noexcept {
  Flag& flag = segment.flag(slot_number, local_rank);
  flag.stamp.store(stamp, std::memory_order_relaxed);
  flag.done.store(done, std::memory_order_relaxed);
  flag.value.store(value, std::memory_order_release);
  notify(segment);
}

/// Whether the flag has been raised to `value` or further.
inline bool reached(const Flag& flag, std::uint64_t value) noexcept {
  return flag.value.load(std::memory_order_acquire) >= value;
}

/// A rank that is about to sleep, or sleeps. Between construction and sleep() look once more at
/// what is awaited.
class Sleeper {
 public:
  Sleeper(const NodeSegment& segment, int local_rank) noexcept;
  ~Sleeper();
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  /// Until notify() by any rank of the node, at most `timeout_ms` and kMaxSleepMs.
  void sleep(int timeout_ms) noexcept;

 private:
  const NodeSegment& segment_;
  RankLine& line_;
};

/// Sleeps until `ready()`, the node's abort, or the time is over, whichever comes first; returns
/// ready(). May return early: callers loop.
template <class Ready>
bool sleep_until(const NodeSegment& segment, int local_rank, Ready&& ready, int timeout_ms) {
  Sleeper sleeper(segment, local_rank);
  if (ready()) return true;
  if (segment.aborted()) return false;
  sleeper.sleep(timeout_ms);
  return ready();
}

}  // namespace allrail::shm
