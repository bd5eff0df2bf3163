#include "lib/base/error.hpp"

#include <system_error>

#include <sys/resource.h>

namespace allrail {

const char* code_name(Code code) noexcept {
  switch (code) {
    case Code::InvalidArgument:
      return "invalid-argument";
    case Code::Mismatch:
      return "mismatch";
    case Code::BadConfiguration:
      return "bad-configuration";
    case Code::Bootstrap:
      return "bootstrap";
    case Code::ResourceLimit:
      return "resource-limit";
    case Code::Network:
      return "network";
    case Code::PeerLost:
      return "peer-lost";
    case Code::Timeout:
      return "timeout";
    case Code::Aborted:
      return "aborted";
    case Code::Internal:
      return "internal";
  }
  return "unknown";
}

namespace base {

std::string errno_text(int error_number) { return std::generic_category().message(error_number); }

std::string refusal_text(int error_number) {
  std::string text = errno_text(error_number);
  if (error_number == ENFILE) {
    text += "; all processes of this host have too many: raise the limit there (fs.file-max)";
  }
  if (error_number != EMFILE) return text;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return text;
  return text + fmt::format("; this process may have {}: raise the limit of open files (ulimit -n)",
                            limit.rlim_cur);
}

int check_minus_one(int result, const char* action) {
  if (result == -1) fail(Code::ResourceLimit, "{}: {}", action, refusal_text(errno));
  return result;
}

void check_errno_value(int result, const char* action) {
  if (result != 0) fail(Code::ResourceLimit, "{}: {}", action, refusal_text(result));
}

}  // namespace base
}  // namespace allrail
