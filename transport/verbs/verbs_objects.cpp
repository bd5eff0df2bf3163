#include "transport/verbs/verbs_objects.hpp"

#include <cerrno>

#include <sys/resource.h>

#include "lib/base/error.hpp"
#include "lib/base/log.hpp"

namespace allrail::transport::verbs {

void log_release(int result, const char* what) noexcept {
  if (result == 0) return;
  const int error_number = result > 0 ? result : errno;
  // A device that was unplugged takes its objects with it.
  if (error_number == EIO || error_number == ENODEV) return;
  base::log_warning("cannot release {}: {}", what, base::errno_text(error_number));
}

namespace {

std::string limit_of_locked_memory() {
  rlimit limit{};
  const bool is_limited =
      ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_limited ? fmt::format("{} KiB", limit.rlim_cur / 1024) : "unlimited";
}

}  // namespace

void fail_call(int error_number, const std::string& rail, const char* action) {
  const std::string advice =
      error_number == ENOMEM
          ? fmt::format(
                "; the limit of locked memory (ulimit -l) is {}: raise it, or use fewer "
                "connections",
                limit_of_locked_memory())
          : "";
  base::fail(Code::ResourceLimit, "rail {}: cannot {}: {}{}", rail, action,
             base::refusal_text(error_number), advice);
}

void check_minus_one(int result, const std::string& rail, const char* action) {
  if (result == -1) fail_call(errno, rail, action);
}

void check_errno_value(int result, const std::string& rail, const char* action) {
  if (result != 0) fail_call(result > 0 ? result : errno, rail, action);
}

}  // namespace allrail::transport::verbs
