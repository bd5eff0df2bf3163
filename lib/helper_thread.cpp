#include "lib/helper_thread.hpp"

#include <chrono>
#include <utility>

#include <sys/prctl.h>

#include "lib/base/log.hpp"
#include "lib/base/thread.hpp"

namespace allrail {
namespace {

constexpr std::chrono::milliseconds kPause(100);
/// Each costs a core some microseconds, of ranks that are busy.
constexpr std::chrono::microseconds kQuickPause(300);
/// So long after its last word the user is away.
constexpr std::int64_t kAwayNs = 100'000;
constexpr int kMostQuietLooks = 20;
/// While the user is active: once a second it comes all the same.
constexpr int kMostSkippedLooks = 9;
/// Where these brought nothing, since the user is inside or a peer takes nothing.
constexpr std::chrono::milliseconds kOwedPause(10);
/// By which the kernel may be late with them; it would take 50 us.
constexpr unsigned long kTimerSlackNs = 5'000;

}  // namespace

void HelperThread::start(EntryGate& gate, std::function<bool()> work) {
  seen_entries_ = gate.entries();
  thread_ = base::start_thread("the helper of calls in flight",
                               [this, &gate, work = std::move(work)] { loop(gate, work); });
}

void HelperThread::loop(EntryGate& gate, const std::function<bool()>& work) {
  ::prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const bool was_quick = is_quick_.load(std::memory_order_relaxed);
    if (was_quick) {
      wake_.wait_for(lock, kQuickPause, [this] { return stopping_; });
    } else {
      wake_.wait_for(lock, is_owed_ ? kOwedPause : kPause,
                     [this] { return stopping_ || is_quick_.load(); });
    }
    if (stopping_ || is_quick_.load(std::memory_order_relaxed) != was_quick || !look(gate))
      continue;
    is_owed_ = run(work);
    if (is_owed_) {
      note_quiet_look();
    } else {
      calm_down();
    }
    gate.helper_leave();
  }
}

/// True: it is inside the gate, and there may be work.
bool HelperThread::look(EntryGate& gate) {
  const unsigned long entries = gate.entries();
  const bool was_active = std::exchange(seen_entries_, entries) != entries;
  if (!is_quick_.load(std::memory_order_relaxed)) {
    // Calls that look at no rail, such as those of one rank alone, must not keep it out for ever.
    const bool is_due = ++skipped_looks_ > kMostSkippedLooks;
    if (!(is_owed_ || !was_active || is_due) || !gate.helper_enter()) return false;
    skipped_looks_ = 0;
    return true;
  }
  seen_hurry_ns_ = hurried_ns_.load(std::memory_order_relaxed);
  if (base::now_ns() - seen_hurry_ns_ < kAwayNs) {
    quiet_looks_ = 0;
    return false;
  }
  if (gate.helper_enter()) return true;
  note_quiet_look();
  return false;
}

/// Who is inside for long mostly waits, and hands over itself.
void HelperThread::note_quiet_look() noexcept {
  if (!is_quick_.load(std::memory_order_relaxed) || ++quiet_looks_ < kMostQuietLooks) return;
  is_owed_ = true;
  calm_down();
}

void HelperThread::calm_down() noexcept {
  quiet_looks_ = 0;
  is_quick_.store(false, std::memory_order_relaxed);
  // It may have hurried us just now, and seen us quick.
  const bool stays =
      !EntryGate::fence() || hurried_ns_.load(std::memory_order_relaxed) != seen_hurry_ns_;
  if (stays) is_quick_.store(true, std::memory_order_relaxed);
}

bool HelperThread::run(const std::function<bool()>& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    base::log_error("helper thread: {}", error.what());
    return false;
  }
}

void HelperThread::quicken() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_quick_.store(true, std::memory_order_relaxed);
  }
  wake_.notify_all();
}

void HelperThread::stop() noexcept {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

}  // namespace allrail
