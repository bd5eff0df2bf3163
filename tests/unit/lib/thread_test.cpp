#include "lib/base/thread.hpp"

#include <csignal>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/error.hpp"

namespace allrail::base {
namespace {

TEST(StartThread, GetsNoSignalsOfTheUser) {
  bool blocked = false;
  start_thread("a test", [&blocked] {
    sigset_t mask;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked = ::sigismember(&mask, SIGTERM) == 1 && ::sigismember(&mask, SIGUSR1) == 1;
  }).join();
  EXPECT_TRUE(blocked);
  sigset_t mine;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  EXPECT_EQ(::sigismember(&mine, SIGTERM), 0);
}

/// In a process of its own, whose address space has no room for another stack. That of a thread
/// that has ended may be there, and is used first.
int start_without_memory() {
  const rlimit none{1 << 20, 1 << 20};
  if (::setrlimit(RLIMIT_AS, &none) != 0) return 2;
  try {
    for (int i = 0; i < 4; ++i) start_thread("a test", [] { ::pause(); }).detach();
  } catch (const Error& error) {
    sigset_t mine;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mine);
    return error.code() == Code::ResourceLimit && ::sigismember(&mine, SIGTERM) == 0 ? 0 : 3;
  }
  return 4;
}

TEST(StartThread, SaysWhereThereIsNone) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need memory of their own";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  GTEST_SKIP() << "sanitizers need memory of their own";
#endif
#endif
  const pid_t child = ::fork();
  if (child == 0) ::_exit(start_without_memory());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace allrail::base
