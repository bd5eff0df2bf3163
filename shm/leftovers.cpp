// Finds segments whose creator died between creating and unlinking them.
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/handle.hpp"
#include "lib/base/log.hpp"
#include "shm/header.hpp"
#include "shm/segment.hpp"

namespace allrail::shm {
namespace {

bool is_leftover(int directory, const char* name) noexcept {
  const base::UniqueFd file(
      ::openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) return false;
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) return false;
  ProcessIdentity creator;
  const ssize_t bytes = ::pread(file.get(), &creator, sizeof(creator), 0);
  if (bytes != static_cast<ssize_t>(sizeof(creator))) return false;  // not one of ours
  return life_of(creator) == Life::Dead;
}

}  // namespace

int remove_leftovers() noexcept {
  char prefix[32];
  *fmt::format_to_n(prefix, sizeof(prefix) - 1, "allrail-{}-", ::geteuid()).out = '\0';
  DIR* directory = ::opendir("/dev/shm");
  if (directory == nullptr) return 0;
  int removed = 0;
  while (const dirent* entry = ::readdir(directory)) {
    if (std::strncmp(entry->d_name, prefix, std::strlen(prefix)) != 0) continue;
    if (!is_leftover(::dirfd(directory), entry->d_name)) continue;
    if (::unlinkat(::dirfd(directory), entry->d_name, 0) == 0) {
      ++removed;
      base::log_info("removed the segment {} of a process that is dead", entry->d_name);
    }
  }
  ::closedir(directory);
  return removed;
}

}  // namespace allrail::shm
