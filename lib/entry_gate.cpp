#include "lib/entry_gate.hpp"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/error.hpp"

namespace allrail {
namespace {

long membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

EntryGate::EntryGate()
    : admits_helper_(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0) {}

bool EntryGate::fence() noexcept { return membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0; }

bool EntryGate::helper_enter() noexcept {
  if (inside_.load(std::memory_order_relaxed)) return false;
  helper_inside_.store(true, std::memory_order_seq_cst);
  // Without this barrier the helper could not be sure that the user's thread sees its store, so it
  // stays outside where the kernel does not offer it.
  if (fence() && !inside_.load(std::memory_order_acquire)) return true;
  helper_leave();
  return false;
}

void EntryGate::wait_for_helper() noexcept {
  while (helper_inside_.load(std::memory_order_acquire)) ::sched_yield();
}

void EntryGuard::refuse() {
  base::fail(Code::InvalidArgument,
             "two threads use Allrail at the same time; one thread at a time may, in a process");
}

}  // namespace allrail
