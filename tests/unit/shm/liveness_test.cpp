#include "shm/liveness.hpp"

#include <csignal>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

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

}  // namespace
}  // namespace allrail::shm
