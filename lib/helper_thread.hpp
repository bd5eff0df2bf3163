// The helper thread: it makes progress for this rank while the user computes.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

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

  void start(EntryGate& gate, std::function<void()> work);
  void stop() noexcept;

 private:
  void loop(EntryGate& gate, const std::function<void()>& work);

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace allrail
