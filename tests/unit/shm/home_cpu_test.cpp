// A rank that has to share its cpu goes home, and stays free to be moved.
#include "shm/home_cpu.hpp"

#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "shm/wait.hpp"

namespace allrail::shm {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;

cpu_set_t allowed() {
  cpu_set_t cpus;
  EXPECT_EQ(::sched_getaffinity(0, sizeof cpus, &cpus), 0);
  return cpus;
}

cpu_set_t only(int cpu) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(cpu, &cpus);
  return cpus;
}

void bind(const cpu_set_t& cpus) { ASSERT_EQ(::sched_setaffinity(0, sizeof cpus, &cpus), 0); }

class HomeCpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &before_)) cpus_.push_back(cpu);
    }
    if (cpus_.size() < 2) GTEST_SKIP() << "needs two cpus";
  }
  void TearDown() override { bind(before_); }
  int home() const { return cpus_[0]; }
  int elsewhere() const { return cpus_[1]; }
  /// Bound, so that the kernel moves it only where it has to.
  void stand(int cpu) const {
    bind(only(cpu));
    ASSERT_EQ(::sched_getcpu(), cpu);
  }

  const cpu_set_t before_ = allowed();
  std::vector<int> cpus_;
};

TEST_F(HomeCpuTest, ARankThatIsElsewhereGoesHomeAndIsNotBound) {
  bool went = false;
  // The kernel may move it back at once.
  for (int attempt = 0; attempt < 100 && !went; ++attempt) {
    stand(elsewhere());
    bind(before_);
    HomeCpu(home()).crowded(0);
    went = ::sched_getcpu() == home();
    const cpu_set_t after = allowed();
    EXPECT_TRUE(CPU_EQUAL(&after, &before_));
  }
  EXPECT_TRUE(went);
}

TEST_F(HomeCpuTest, ARankWithoutAHomeIsNotMoved) {
  stand(elsewhere());
  HomeCpu(-1).crowded(0);
  const cpu_set_t after = allowed();
  const cpu_set_t bound = only(elsewhere());
  EXPECT_TRUE(CPU_EQUAL(&after, &bound));
}

TEST_F(HomeCpuTest, WhoeverIsBoundElsewhereHasNoHomeAnyMore) {
  HomeCpu cpu(home());
  stand(elsewhere());
  cpu.crowded(0);
  EXPECT_EQ(::sched_getcpu(), elsewhere());
  bool stays = false;
  // The kernel may move it by itself. Looks are an hour apart, so that each would be made.
  for (int hour = 1; hour <= 100 && !stays; ++hour) {
    stand(elsewhere());
    bind(before_);
    cpu.crowded(hour * 3600'000 * kMillisecond);
    stays = ::sched_getcpu() == elsewhere();
  }
  EXPECT_TRUE(stays);
}

/// Tried every millisecond of a second; each look finds the rank elsewhere and takes it home.
TEST_F(HomeCpuTest, WhoeverIsAlwaysFoundElsewhereGoesHomeLessOften) {
  HomeCpu cpu(home());
  std::int64_t now_ns = 0;
  int moves = 0;
  for (; now_ns < 1000 * kMillisecond; now_ns += kMillisecond) {
    stand(elsewhere());
    bind(before_);
    cpu.crowded(now_ns);
    if (::sched_getcpu() == home()) ++moves;
  }
  // After 0, 2, 6, 14, ... ms: nine in a second; the kernel's own moves come on top.
  EXPECT_GE(moves, 5);
  EXPECT_LE(moves, 100);
}

TEST_F(HomeCpuTest, AYieldThatTakesLongTakesARankHome) {
  bool went = false;
  for (int attempt = 0; attempt < 100 && !went; ++attempt) {
    stand(elsewhere());
    bind(before_);
    SharedCore core(home());
    core.yielded(100, kMillisecond);
    core.yielded(kMillisecond, kMillisecond);
    went = ::sched_getcpu() == home();
  }
  EXPECT_TRUE(went);
}

}  // namespace
}  // namespace allrail::shm
