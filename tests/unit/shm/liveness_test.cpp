#include "shm/liveness.hpp"

#include <chrono>
#include <csignal>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/clock.hpp"
#include "shm/process.hpp"

namespace allrail::shm {
namespace {

pid_t start_sleeper() {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  return child;
}

void end(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(PeerWatchTest, says_who_died) {
  const std::vector<pid_t> pids{start_sleeper(), start_sleeper(), start_sleeper()};
  const PeerWatch watch(pids);
  EXPECT_FALSE(watch.dead().has_value());
  ::kill(pids[1], SIGSTOP);
  EXPECT_FALSE(watch.dead().has_value());  // stopped is not dead
  end(pids[1]);
  EXPECT_EQ(watch.dead(), 1);
  EXPECT_TRUE(watch.is_dead(1) && !watch.is_dead(0));
  end(pids[0]);
  end(pids[2]);
  EXPECT_EQ(watch.dead(), 0);
}

TEST(PeerWatchTest, a_zombie_is_dead) {
  const std::vector<pid_t> pids{start_sleeper()};
  const PeerWatch watch(pids);
  ::kill(pids[0], SIGKILL);
  for (int tries = 0; tries < 1000 && !watch.dead(); ++tries) ::usleep(1000);
  EXPECT_EQ(watch.dead(), 0);
  ::waitpid(pids[0], nullptr, 0);
}

TEST(PeerWatchTest, who_was_gone_before_counts_as_dead) {
  const pid_t child = start_sleeper();
  end(child);
  const std::vector<pid_t> pids{::getpid(), child};
  PeerWatch watch(pids);
  EXPECT_EQ(watch.dead(), 1);
  watch.forget(1);
  EXPECT_FALSE(watch.dead().has_value());
}

TEST(PeerWatchTest, watches_more_than_one_poll_holds) {
  std::vector<pid_t> pids(150, ::getpid());
  pids[140] = start_sleeper();
  const PeerWatch watch(pids);
  EXPECT_FALSE(watch.dead().has_value());
  end(pids[140]);
  EXPECT_EQ(watch.dead(), 140);
}

TEST(ProcessTest, identity_tells_life) {
  const ProcessIdentity self = this_process();
  EXPECT_NE(self.start_time, 0U);
  EXPECT_EQ(life_of(self), Life::Alive);
  ProcessIdentity earlier = self;
  earlier.start_time -= 1;
  EXPECT_EQ(life_of(earlier), Life::Dead);
  ProcessIdentity elsewhere = self;
  elsewhere.pid_namespace += 1;
  EXPECT_EQ(life_of(elsewhere), Life::Unknown);
  EXPECT_EQ(life_of({}), Life::Unknown);
}

/// Of a child that tells its identity and then does what it is given.
template <class Work>
std::pair<pid_t, ProcessIdentity> start_known(const Work& work) {
  int ends[2];
  if (::pipe(ends) != 0) return {-1, {}};
  const pid_t child = ::fork();
  if (child == 0) {
    const ProcessIdentity identity = this_process();
    if (::write(ends[1], &identity, sizeof identity) != sizeof identity) ::_exit(1);
    work();
    ::_exit(0);
  }
  ::close(ends[1]);
  ProcessIdentity identity;
  EXPECT_EQ(::read(ends[0], &identity, sizeof identity), static_cast<ssize_t>(sizeof identity));
  ::close(ends[0]);
  return {child, identity};
}

TEST(ProcessTest, is_dead_before_anybody_has_waited_for_it) {
  const auto [child, identity] = start_known([] { ::raise(SIGKILL); });
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(life_of(identity), Life::Dead);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(life_of(identity), Life::Dead);
}

TEST(ProcessTest, is_not_dead_while_a_thread_outlives_the_main_one) {
  const auto [child, identity] = start_known([] {
    std::thread([] { ::pause(); }).detach();
    ::syscall(SYS_exit, 0);  // of this thread only
  });
  const auto deadline = base::Deadline::after(std::chrono::seconds(10));
  while (life_of(identity) == Life::Alive && !deadline.passed()) ::usleep(1000);
  // Neither on the way nor for long afterwards.
  for (int look = 0; look < 100; ++look) {
    EXPECT_EQ(life_of(identity), Life::Ending);
    ::usleep(100);
  }
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(life_of(identity), Life::Dead);
}

}  // namespace
}  // namespace allrail::shm
