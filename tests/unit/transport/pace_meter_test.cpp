// When a rail counts as slow or fast, by what was seen of it.
#include <cstdint>

#include <gtest/gtest.h>

#include "transport/pace.hpp"

namespace allrail::transport {
namespace {

/// So many samples of the same kind.
void see(PaceMeter& meter, int samples, bool is_slow, double bytes_per_second) {
  for (int i = 0; i < samples; ++i) meter.saw(is_slow, bytes_per_second);
}

TEST(PaceMeter, ForgetsASlowChunkAfterSoManyFastOnesOfARailThatCarriesMore) {
  PaceMeter meter;
  see(meter, PaceMeter::kSamples - 1, false, 200e6);
  EXPECT_EQ(meter.pace(), Pace::Unknown);
  see(meter, 1, false, 200e6);
  EXPECT_EQ(meter.pace(), Pace::Fast);
  see(meter, 1, true, 60e6);
  EXPECT_EQ(meter.pace(), Pace::Slow) << "what a shaper has saved up is gone now";
  see(meter, PaceMeter::kSamples - 1, false, 200e6);
  EXPECT_EQ(meter.pace(), Pace::Slow);
  see(meter, 1, false, 200e6);
  EXPECT_EQ(meter.pace(), Pace::Fast);
}

TEST(PaceMeter, StaysSlowForLongWhereARailCarriesNoMoreThanWhenItWasSlow) {
  PaceMeter meter;
  see(meter, PaceMeter::kSamples, true, 60e6);
  EXPECT_EQ(meter.pace(), Pace::Slow);
  see(meter, 10 * PaceMeter::kSamples, false, 50e6);
  EXPECT_EQ(meter.pace(), Pace::Slow) << "whoever chose by it sends less";
  see(meter, 6 * PaceMeter::kSamples, false, 50e6);
  EXPECT_EQ(meter.pace(), Pace::Fast) << "but not for ever";
  meter.saw(true, 60e6);
  EXPECT_EQ(meter.pace(), Pace::Slow);
}

TEST(PaceMeter, IsSlowByABatchOnlyWhereMoreOfThemStayThanLeave) {
  PaceMeter meter;
  for (int i = 0; i < 100; ++i) {
    for (const bool is_slow : {true, false}) meter.saw_batch(is_slow, 60e6);
  }
  EXPECT_EQ(meter.pace(), Pace::Unknown);
  for (int i = 0; i < PaceMeter::kSlowBatches; ++i) meter.saw_batch(true, 60e6);
  EXPECT_EQ(meter.pace(), Pace::Slow);
  for (int i = 0; i < PaceMeter::kSamples; ++i) meter.saw_batch(false, 200e6);
  EXPECT_EQ(meter.pace(), Pace::Unknown) << "of longer chunks nothing is known";
  see(meter, PaceMeter::kSamples, false, 200e6);
  EXPECT_EQ(meter.pace(), Pace::Fast);
  meter.saw_batch(true, 60e6);
  EXPECT_EQ(meter.pace(), Pace::Fast) << "one that stays says little";
}

TEST(Load, IsOfTheLastMillisecondsAndNotOfIdleOnes) {
  constexpr std::int64_t kMs = 1'000'000;
  Load load;
  const std::int64_t start_ns = 5'000'000 * kMs;  // long after the machine was started
  EXPECT_EQ(load.bytes_per_second(1000, start_ns), 0) << "nothing is known yet";
  EXPECT_EQ(load.bytes_per_second(9000, start_ns + 1 * kMs), 0) << "a burst is no load";
  EXPECT_EQ(load.bytes_per_second(301'000, start_ns + 3 * kMs), 100e6);
  EXPECT_EQ(load.bytes_per_second(302'000, start_ns + 500 * kMs), 100e6) << "it was idle";
  EXPECT_EQ(load.bytes_per_second(502'000, start_ns + 504 * kMs), 50e6);
}

}  // namespace
}  // namespace allrail::transport
