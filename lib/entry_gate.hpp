// Who is inside Allrail: the user's thread in a call, or the helper thread between calls.
//
// The user's thread pays one store and one load, with no fence: the helper, which comes ten times a
// second, runs membarrier(2) between its own store and load, which stands in for both fences.
#pragma once

#include <atomic>

namespace allrail {

class EntryGate {
 public:
  EntryGate();

  /// The user's thread comes in; waits for the helper if that is inside, which never takes long.
  /// False: another thread is inside already, and this one must not go on.
  bool enter() noexcept {
    if (inside_.load(std::memory_order_relaxed)) return false;
    inside_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (helper_inside_.load(std::memory_order_acquire)) wait_for_helper();
    return true;
  }
  void leave() noexcept {
    entries_.store(entries_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    inside_.store(false, std::memory_order_release);
  }

  /// Whether the helper can ever come in: where the kernel has no membarrier(2) it cannot.
  bool admits_helper() const noexcept { return admits_helper_; }
  /// For the helper, between a store and a load of its own: the user's thread does both without a
  /// fence. False: the kernel has no such call.
  static bool fence() noexcept;
  /// The helper tries to come in; succeeds only while the user's thread is outside.
  bool helper_enter() noexcept;
  void helper_leave() noexcept { helper_inside_.store(false, std::memory_order_release); }
  /// Grows with every call that ended: whether the user's thread was active lately.
  unsigned long entries() const noexcept { return entries_.load(std::memory_order_relaxed); }

 private:
  void wait_for_helper() noexcept;

  bool admits_helper_;
  std::atomic<bool> inside_{false};
  std::atomic<unsigned long> entries_{0};
  alignas(64) std::atomic<bool> helper_inside_{false};
};

/// Inside for the life of this object.
class EntryGuard {
 public:
  /// Throws Error{InvalidArgument} if a thread is inside.
  explicit EntryGuard(EntryGate& gate) : gate_(gate) {
    if (!gate.enter()) refuse();
  }
  ~EntryGuard() { gate_.leave(); }
  EntryGuard(const EntryGuard&) = delete;
  EntryGuard& operator=(const EntryGuard&) = delete;

 private:
  [[noreturn]] static void refuse();

  EntryGate& gate_;
};

}  // namespace allrail
