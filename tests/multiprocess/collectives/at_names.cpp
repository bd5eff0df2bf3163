// What happens to ranks where they name files in /dev/shm and open them, by the environment: rank 0
// is killed as soon as it has named its n-th, the moment in which only others can take the name
// away again; a rank opens its first, or with `RANK:N` its n-th, one second late.
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" [[gnu::visibility("default")]] int linkat(int from_folder, const char* from,
                                                     int to_folder, const char* to,
                                                     int flags) noexcept {
  const auto code =
      static_cast<int>(::syscall(SYS_linkat, from_folder, from, to_folder, to, flags));
  static int named = 0;
  ++named;
  const char* const fatal = std::getenv("PROBE_DIES_AT_NAME");
  const char* const rank = std::getenv("PMIX_RANK");
  if (code == 0 && fatal != nullptr && std::atoi(fatal) == named && rank != nullptr &&
      std::string_view(rank) == "0") {
    ::kill(::getpid(), SIGKILL);
  }
  return code;
}

extern "C" [[gnu::visibility("default")]] int shm_open(const char* name, int flags, mode_t mode) {
  static int opened = 0;
  ++opened;
  const char* const late = std::getenv("PROBE_LATE_AT_OPEN");
  const char* const rank = std::getenv("PMIX_RANK");
  if (late != nullptr && rank != nullptr) {
    const std::string_view all(late);
    const std::size_t colon = all.find(':');
    const int number = colon == std::string_view::npos ? 1 : std::atoi(late + colon + 1);
    if (all.substr(0, colon) == rank && opened == number) ::sleep(1);
  }
  const std::string path = std::string("/dev/shm") + name;
  return static_cast<int>(
      ::syscall(SYS_openat, AT_FDCWD, path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, mode));
}
