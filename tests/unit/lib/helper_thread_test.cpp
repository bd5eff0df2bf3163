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
    helper_.start(gate_, [this] { work_.fetch_add(1); });
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
