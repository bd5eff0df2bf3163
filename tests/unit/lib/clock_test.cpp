#include "lib/base/clock.hpp"

#include <chrono>

#include <gtest/gtest.h>

namespace allrail::base {
namespace {

TEST(Deadline, BeyondTheClockIsNever) {
  using std::chrono::milliseconds;
  for (const Deadline deadline :
       {Deadline::after(milliseconds::max()), Deadline::after(std::chrono::hours(24 * 365 * 200)),
        Deadline::after(std::chrono::nanoseconds::max()), Deadline::never()}) {
    EXPECT_FALSE(deadline.passed());
    EXPECT_EQ(deadline.remaining_ms(1234), 1234);
    EXPECT_EQ(deadline.at_ns(), Deadline::never().at_ns());
  }
}

TEST(Deadline, PassesInTime) {
  EXPECT_TRUE(Deadline::after(std::chrono::nanoseconds(0)).passed());
  EXPECT_TRUE(Deadline::after(std::chrono::seconds(-1)).passed());
  const Deadline later = Deadline::after(std::chrono::seconds(100));
  EXPECT_FALSE(later.passed());
  EXPECT_EQ(later.remaining_ms(50), 50);
  EXPECT_LE(later.remaining_ms(1'000'000), 100'000);
}

}  // namespace
}  // namespace allrail::base
