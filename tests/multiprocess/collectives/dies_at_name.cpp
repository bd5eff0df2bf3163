// Rank 0 is killed as soon as it has given its n-th file in /dev/shm a name, with n from the
// environment: the moment in which only others can take the name away again.
#include <csignal>
#include <cstdlib>
#include <string_view>

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
