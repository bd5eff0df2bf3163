// Which process made something, told apart from a later process with the same number.
#pragma once

#include <cstdint>

namespace allrail::shm {

struct ProcessIdentity {
  std::int64_t pid = 0;             // 0: unknown
  std::uint64_t start_time = 0;     // clock ticks since boot, from /proc/PID/stat; 0: unknown
  std::uint64_t pid_namespace = 0;  // where that number means something
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

ProcessIdentity this_process() noexcept;

/// Ending: the main thread has ended or is about to, and others have not. Dead does not ask whether
/// somebody has waited for the process.
enum class Life { Alive, Ending, Dead, Unknown };
/// Unknown for a process of another pid namespace, or an identity that was never filled in.
Life life_of(const ProcessIdentity& identity) noexcept;

}  // namespace allrail::shm
