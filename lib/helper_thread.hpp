// The helper thread: it makes progress for this rank while the user computes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "lib/base/clock.hpp"
#include "lib/entry_gate.hpp"

namespace allrail {

/// Comes ten times a second and, when the user's thread has been outside since it last came, does
/// `work` inside the gate. Stops when destroyed.
class HelperThread {
 public:
  HelperThread() = default;
  ~HelperThread() { stop(); }
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  /// `work` says whether it is to be done again soon.
  void start(EntryGate& gate, std::function<bool()> work);
  void stop() noexcept;
  /// Called inside the gate, by the user's thread: there is work to be done some 100 to 400 us
  /// after it left, unless it comes back and calls again before.
  void hurry() noexcept {
    hurried_ns_.store(base::now_ns(), std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!is_quick_.load(std::memory_order_relaxed)) quicken();
  }

 private:
  void loop(EntryGate& gate, const std::function<bool()>& work);
  void quicken() noexcept;
  bool look(EntryGate& gate);
  void calm_down() noexcept;
  static bool run(const std::function<bool()>& work);
  void note_quiet_look() noexcept;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  int skipped_looks_ = 0;  // since it was inside
  unsigned long seen_entries_ = 0;
  std::atomic<std::int64_t> hurried_ns_{0};  // when it was last
  std::int64_t seen_hurry_ns_ = 0;           // by the helper, at its last look
  std::atomic<bool> is_quick_{false};        // it looks often
  int quiet_looks_ = 0;                      // the last ones of those without a new hurry()
  bool is_owed_ = false;                     // there may be work, but it looked in vain for long
  std::thread thread_;
};

}  // namespace allrail
