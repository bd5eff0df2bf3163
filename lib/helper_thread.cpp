#include "lib/helper_thread.hpp"

#include <chrono>
#include <csignal>
#include <utility>

#include <pthread.h>

#include "lib/base/log.hpp"

namespace allrail {

void HelperThread::start(EntryGate& gate, std::function<void()> work) {
  // Signals belong to the user's threads: the helper is made with all of them blocked.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, &gate, work = std::move(work)] { loop(gate, work); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void HelperThread::loop(EntryGate& gate, const std::function<void()>& work) {
  unsigned long seen = gate.entries();
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::milliseconds(100), [this] { return stopping_; })) {
    const unsigned long now = gate.entries();
    if (now == std::exchange(seen, now) && gate.helper_enter()) {
      try {
        work();
      } catch (const std::exception& error) {
        base::log_error("helper thread: {}", error.what());
      }
      gate.helper_leave();
    }
  }
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
