#include "shm/process.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/handle.hpp"

namespace allrail::shm {
namespace {

constexpr int kStartTimeField = 22;  // of /proc/PID/stat, counted from 1; see proc(5)

std::uint64_t start_time_of(std::int64_t pid) noexcept {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%lld/stat", static_cast<long long>(pid));
  const base::UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return 0;
  char text[1024];
  const ssize_t bytes = ::read(file.get(), text, sizeof(text) - 1);
  if (bytes <= 0) return 0;
  text[bytes] = '\0';
  // The second field is the program's name in parentheses and may hold spaces and parentheses.
  const char* at = std::strrchr(text, ')');
  for (int field = 2; at != nullptr && field < kStartTimeField; ++field) {
    at = std::strchr(at + 1, ' ');
  }
  return at == nullptr ? 0 : std::strtoull(at + 1, nullptr, 10);
}

std::uint64_t this_pid_namespace() noexcept {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

}  // namespace

ProcessIdentity this_process() noexcept {
  return {::getpid(), start_time_of(::getpid()), this_pid_namespace()};
}

Life life_of(const ProcessIdentity& identity) noexcept {
  if (identity.pid <= 0 || identity.start_time == 0 || identity.pid_namespace == 0) {
    return Life::Unknown;
  }
  if (identity.pid_namespace != this_pid_namespace()) return Life::Unknown;
  if (::kill(static_cast<pid_t>(identity.pid), 0) != 0 && errno == ESRCH) return Life::Dead;
  const std::uint64_t start_time = start_time_of(identity.pid);
  if (start_time == 0) return Life::Unknown;
  return start_time == identity.start_time ? Life::Alive : Life::Dead;
}

}  // namespace allrail::shm
