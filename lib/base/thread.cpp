#include "lib/base/thread.hpp"

#include <csignal>
#include <system_error>
#include <utility>

#include "lib/base/error.hpp"

namespace allrail::base {
namespace {

/// A new thread takes over what is blocked where it is made.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

std::thread start_thread(std::string_view what_for, std::function<void()> body) {
  const SignalsBlocked blocked;
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    fail(
        Code::ResourceLimit,
        "cannot start a thread for {}: {}; raise the limit of processes (ulimit -u, or that of the "
        "cgroup)",
        what_for, error.what());
  }
}

}  // namespace allrail::base
