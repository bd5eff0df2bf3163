#include "shm/leftovers.hpp"

#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/handle.hpp"
#include "shm/process.hpp"

namespace allrail::shm {
namespace {

Life creator_of(int directory, const char* name) noexcept {
  const base::UniqueFd file(
      ::openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) return Life::Unknown;
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) return Life::Unknown;
  ProcessIdentity creator;
  const ssize_t bytes = ::pread(file.get(), &creator, sizeof(creator), 0);
  if (bytes != static_cast<ssize_t>(sizeof(creator))) return Life::Unknown;  // not one of ours
  return life_of(creator);
}

}  // namespace

Sweep sweep_leftovers(void (*on_removed)(const char* name)) noexcept {
  Sweep sweep;
  char prefix[32];
  *fmt::format_to_n(prefix, sizeof(prefix) - 1, "allrail-{}-", ::geteuid()).out = '\0';
  DIR* directory = ::opendir("/dev/shm");
  if (directory == nullptr) return sweep;
  while (const dirent* entry = ::readdir(directory)) {
    if (std::strncmp(entry->d_name, prefix, std::strlen(prefix)) != 0) continue;
    const Life life = creator_of(::dirfd(directory), entry->d_name);
    if (life == Life::Ending) ++sweep.ending;
    if (life != Life::Dead || ::unlinkat(::dirfd(directory), entry->d_name, 0) != 0) continue;
    ++sweep.removed;
    if (on_removed != nullptr) on_removed(entry->d_name);
  }
  ::closedir(directory);
  return sweep;
}

}  // namespace allrail::shm
