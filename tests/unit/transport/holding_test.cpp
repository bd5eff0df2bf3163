// Which puts of a stream lie in their rails, and until when.
#include "transport/holding.hpp"

#include <cstdint>

#include <gtest/gtest.h>

namespace allrail::transport {
namespace {

constexpr std::uint64_t kSmall = 100;

/// A rank that puts to `peers` in every call, and hands over where it may not hold.
class HoldingTest : public ::testing::Test {
 protected:
  /// Whether the last put of the call stays.
  bool call(std::uint64_t bytes = kSmall, bool may_be_held = true) {
    now_ns_ += 1'000;
    ++call_;
    bool held = false;
    for (int peer = 0; peer < peers_; ++peer) {
      held = holding_.note(may_be_held, bytes, call_, now_ns_);
      if (!held) holding_.released();
    }
    return held;
  }
  /// The calls that are held in a row, from now on.
  int batch(std::uint64_t bytes = kSmall) {
    int calls = 0;
    while (calls < 1'000 && call(bytes)) ++calls;
    return calls;
  }
  void stream(int calls) {
    for (int i = 0; i < calls; ++i) call();
  }

  Holding holding_;
  std::int64_t now_ns_ = 1'000'000'000;
  std::uint64_t call_ = 0;
  int peers_ = 1;
};

TEST_F(HoldingTest, TheFirstCallsOfAStreamLeaveAtOnce) {
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(call()) << i;
  EXPECT_TRUE(call());
}

TEST_F(HoldingTest, HalfOfAStreamIsHeldAtMost) {
  while (call_ < 200) EXPECT_LE(2 * static_cast<std::uint64_t>(batch()), call_);
}

TEST_F(HoldingTest, ABatchOfALongStreamHas32Calls) {
  stream(200);
  batch();
  EXPECT_EQ(batch(), 32);
}

TEST_F(HoldingTest, CallsThatPutToManyCountOnce) {
  peers_ = 7;
  stream(200);
  batch();
  EXPECT_GE(batch(), 31);
}

TEST_F(HoldingTest, BatchesOfLongerPutsAreShorter) {
  stream(200);
  batch(16384);
  EXPECT_EQ(batch(16384), 16);
}

TEST_F(HoldingTest, OtherPutsEndAStream) {
  stream(200);
  EXPECT_FALSE(call(kSmall, false));
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(call()) << i;
  EXPECT_TRUE(call());
}

TEST_F(HoldingTest, WhoComputesBetweenItsCallsHoldsNothing) {
  stream(200);
  for (int i = 0; i < 10; ++i) {
    now_ns_ += 60'000;
    call();
  }
  for (int i = 0; i < 100; ++i) {
    now_ns_ += 60'000;
    EXPECT_FALSE(call());
  }
}

TEST_F(HoldingTest, WhoLosesItsCoreOnceIsStillInItsStream) {
  stream(200);
  batch();
  now_ns_ += 5'000'000;
  EXPECT_TRUE(call());
}

TEST_F(HoldingTest, NothingIsHeldForLong) {
  stream(200);
  batch();
  EXPECT_TRUE(call());
  now_ns_ += 40'000;
  EXPECT_TRUE(call());
  now_ns_ += 40'000;
  EXPECT_TRUE(call());
  now_ns_ += 40'000;
  EXPECT_FALSE(call());
}

}  // namespace
}  // namespace allrail::transport
