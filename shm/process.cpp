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

/// Of /proc/PID/stat, whose fields proc(5) counts from 1.
struct Status {
  char state = '?';
  std::uint64_t flags = 0;
  std::uint64_t threads = 0;
  std::uint64_t start_time = 0;  // 0: it could not be read
};
constexpr int kStateField = 3;
constexpr int kFlagsField = 9;
constexpr int kThreadsField = 20;
constexpr int kStartTimeField = 22;
constexpr std::uint64_t kExiting = 4;  // the kernel's PF_EXITING

Status status_of(std::int64_t pid) noexcept {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%lld/stat", static_cast<long long>(pid));
  const base::UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  char text[1024];
  const ssize_t bytes = ::read(file.get(), text, sizeof(text) - 1);
  if (bytes <= 0) return {};
  text[bytes] = '\0';
  Status status;
  // The second field is the program's name in parentheses and may hold spaces and parentheses.
  const char* at = std::strrchr(text, ')');
  for (int field = kStateField; at != nullptr && field <= kStartTimeField; ++field) {
    at = std::strchr(at + 1, ' ');
    if (at == nullptr) break;
    if (field == kStateField) status.state = at[1];
    if (field == kFlagsField) status.flags = std::strtoull(at + 1, nullptr, 10);
    if (field == kThreadsField) status.threads = std::strtoull(at + 1, nullptr, 10);
    if (field == kStartTimeField) status.start_time = std::strtoull(at + 1, nullptr, 10);
  }
  return status;
}

std::uint64_t this_pid_namespace() noexcept {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

}  // namespace

ProcessIdentity this_process() noexcept {
  return {::getpid(), status_of(::getpid()).start_time, this_pid_namespace()};
}

Life life_of(const ProcessIdentity& identity) noexcept {
  if (identity.pid <= 0 || identity.start_time == 0 || identity.pid_namespace == 0) {
    return Life::Unknown;
  }
  if (identity.pid_namespace != this_pid_namespace()) return Life::Unknown;
  const Status status = status_of(identity.pid);
  if (status.start_time == 0) {
    const bool is_gone = ::kill(static_cast<pid_t>(identity.pid), 0) != 0 && errno == ESRCH;
    return is_gone ? Life::Dead : Life::Unknown;
  }
  if (status.start_time != identity.start_time) return Life::Dead;
  // Who is to wait for it may never do so: the first process of a container often does not.
  if (status.state == 'Z' || status.state == 'X') {
    return status.threads > 1 ? Life::Ending : Life::Dead;
  }
  return (status.flags & kExiting) != 0 ? Life::Ending : Life::Alive;
}

}  // namespace allrail::shm
