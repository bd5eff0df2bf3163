// The helper comes while the user is outside, and soon where it was asked to hurry.
#include "lib/helper_thread.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "lib/base/clock.hpp"

namespace allrail {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Helped : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!gate_.admits_helper()) GTEST_SKIP() << "the kernel has no membarrier(2)";
    helper_.start(gate_, [this] {
      work_.fetch_add(1);
      return more_.load();
    });
  }
  bool comes_within(std::chrono::nanoseconds limit, int before) {
    const base::Deadline deadline = base::Deadline::after(limit);
    while (work_.load() == before && !deadline.passed()) std::this_thread::yield();
    return work_.load() != before;
  }
  /// A call of the user that leaves work behind.
  void call() {
    ASSERT_TRUE(gate_.enter());
    helper_.hurry();
    gate_.leave();
  }

  EntryGate gate_;
  std::atomic<int> work_{0};
  std::atomic<bool> more_{false};
  HelperThread helper_;  // ends first
};

TEST_F(Helped, ItComesWhileTheUserIsAway) { EXPECT_TRUE(comes_within(seconds(10), 0)); }

/// Without hurry it comes every 100 ms. A machine that is busy may be late once, but not always.
TEST_F(Helped, ItComesSoonWhereItHurries) {
  int soon = 0;
  for (int attempt = 0; attempt < 100 && soon < 3; ++attempt) {
    const int before = work_.load();
    ASSERT_NO_FATAL_FAILURE(call());
    if (comes_within(milliseconds(20), before)) ++soon;
  }
  EXPECT_EQ(soon, 3);
}

/// The work of every call is done, whenever the helper falls asleep again.
TEST_F(Helped, NoHurryIsMissed) {
  for (int i = 0; i < 300; ++i) {
    const int before = work_.load();
    ASSERT_NO_FATAL_FAILURE(call());
    ASSERT_TRUE(comes_within(seconds(10), before)) << i;
  }
}

/// Such as where a socket took a part: before 100 ms are over it has come twice.
TEST_F(Helped, ItComesAgainAsLongAsThereIsMore) {
  more_ = true;
  int soon = 0;
  for (int attempt = 0; attempt < 100 && soon < 3; ++attempt) {
    const int before = work_.load();
    ASSERT_NO_FATAL_FAILURE(call());
    const base::Deadline deadline = base::Deadline::after(milliseconds(80));
    while (work_.load() < before + 3 && !deadline.passed()) std::this_thread::yield();
    if (work_.load() >= before + 3) ++soon;
  }
  EXPECT_EQ(soon, 3);
}

/// It gives up to hurry while a user is inside for long, but not what it owes.
TEST_F(Helped, WhatIsOwedIsDoneThoughTheUserIsActive) {
  ASSERT_NO_FATAL_FAILURE(call());
  ASSERT_TRUE(gate_.enter());
  std::this_thread::sleep_for(milliseconds(30));
  const int before = work_.load();
  gate_.leave();
  const base::Deadline deadline = base::Deadline::after(seconds(10));
  while (work_.load() == before && !deadline.passed()) {
    // Without an end: to the helper that looks ten times a second it is always active.
    ASSERT_TRUE(gate_.enter());
    gate_.leave();
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_NE(work_.load(), before);
}

/// Calls of one rank alone, say, while those of others stand still.
TEST_F(Helped, ItComesNowAndThenThoughTheUserIsActive) {
  const int before = work_.load();
  const base::Deadline deadline = base::Deadline::after(seconds(10));
  while (work_.load() < before + 2 && !deadline.passed()) {
    ASSERT_TRUE(gate_.enter());
    gate_.leave();
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_GE(work_.load(), before + 2);
}

TEST_F(Helped, ItStaysOutsideWhileTheUserIsInside) {
  ASSERT_NO_FATAL_FAILURE(call());
  ASSERT_TRUE(gate_.enter());
  const int before = work_.load();
  // Longer than it hurries for.
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(work_.load(), before);
  helper_.hurry();
  gate_.leave();
  EXPECT_TRUE(comes_within(seconds(10), before));
}

}  // namespace
}  // namespace allrail
