#include "shm/home_cpu.hpp"

#include <algorithm>

#include <sched.h>

namespace allrail::shm {
namespace {

/// Moves this thread and leaves it where it may run. False: it may not run there.
bool move_to(int cpu) noexcept {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  if (cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &allowed)) return false;
  cpu_set_t home;
  CPU_ZERO(&home);
  CPU_SET(cpu, &home);
  return ::sched_setaffinity(0, sizeof home, &home) == 0 &&
         ::sched_setaffinity(0, sizeof allowed, &allowed) == 0;
}

}  // namespace

void HomeCpu::look(std::int64_t now_ns) noexcept {
  const bool is_home = ::sched_getcpu() == cpu_;
  pause_ns_ =
      std::clamp(is_home ? pause_ns_ / 2 : pause_ns_ * 2, kShortestPauseNs, kLongestPauseNs);
  next_look_ns_ = now_ns + pause_ns_;
  // Where it was bound since start-up, or may not move, it has no home any more.
  if (!is_home && !move_to(cpu_)) cpu_ = -1;
}

}  // namespace allrail::shm
