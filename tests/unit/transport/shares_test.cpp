#include "transport/shares.hpp"

#include <array>

#include <gtest/gtest.h>

#include "transport/fabric_state.hpp"

namespace allrail::transport {
namespace {

Part part(std::uint32_t chunks, double took_us, double bytes_per_second) {
  return {true, chunks, static_cast<std::int64_t>(took_us * 1000), bytes_per_second};
}

TEST(Shares, FollowFromWhoWasDoneLate) {
  // Both were measured in a burst. 16 chunks of 8 KiB: 137 us each on one, 273 us on the other.
  Shares shares;
  std::uint32_t slow = 8;
  for (int i = 0; i < 40; ++i) {
    const std::array<Part, 2> parts{part(16 - slow, 137.0 * (16 - slow), 3e9),
                                    part(slow, 273.0 * slow, 3e9)};
    shares.completed(parts);
    const double share = shares.weight(1) / (shares.weight(0) + shares.weight(1));
    slow = static_cast<std::uint32_t>(16 * share + 0.5);
    if (i < 10) continue;
    EXPECT_EQ(slow, 5U) << "put " << i;
  }
}

TEST(Shares, StayWhereAChunkMoreWouldBeLater) {
  Shares shares;
  const std::array<Part, 2> parts{part(11, 721, 1e9), part(5, 655, 5e8)};
  shares.completed(parts);
  EXPECT_EQ(shares.weight(0), 1e9);
  EXPECT_EQ(shares.weight(1), 5e8);
}

TEST(Shares, ARailThatTookNothingIsTriedIfItIsFastByWeightOrRate) {
  Shares shares;
  const std::array<Part, 2> measured_in_a_burst{part(1, 100, 6e7), part(1, 100, 3e9)};
  shares.completed(measured_in_a_burst);
  for (int i = 0; i < 10; ++i) {
    const std::array<Part, 2> idle{part(0, 0, 6e7), part(16, 4300, 3e7)};
    shares.completed(idle);
  }
  EXPECT_GT(shares.weight(0), shares.weight(1));
  Shares slow;
  const std::array<Part, 2> ten_to_one{part(4, 400, 1e8), part(0, 0, 1e7)};
  for (int i = 0; i < 10; ++i) slow.completed(ten_to_one);
  EXPECT_EQ(slow.weight(1), 1e7) << "a chunk would take longer there than all of them";
}

TEST(Shares, BeginAnewWithARailThatIsNew) {
  Shares shares;
  Part gone = part(0, 0, 0);
  gone.usable = false;
  // What two rails were measured to have in a burst.
  for (int i = 0; i < 20; ++i) {
    const std::array<Part, 3> two{part(8, 1100, 3e9), part(8, 1090, 3e9), gone};
    shares.completed(two);
  }
  const std::array<Part, 3> three{part(6, 820, 6e7), part(5, 810, 6e7), part(5, 815, 6e7)};
  shares.completed(three);
  EXPECT_EQ(shares.weight(0), 6e7);
  EXPECT_EQ(shares.weight(2), 6e7);
}

TEST(Shares, NeedTwoRailsThatAreKnown) {
  Shares shares;
  const std::array<Part, 2> unknown{part(8, 100, 0), part(8, 300, 1e9)};
  shares.completed(unknown);
  EXPECT_EQ(shares.weight(0), 0);
  Part gone = part(0, 0, 1e9);
  gone.usable = false;
  const std::array<Part, 2> alone{part(8, 300, 1e9), gone};
  shares.completed(alone);
  EXPECT_EQ(shares.weight(0), 0);
  EXPECT_EQ(shares.weight(1), 0);
}

TEST(Shares, LeaveOutThatARailWaitedForItsTurn) {
  RailState rail;
  EXPECT_EQ(rail.busy_ns(5), 0);
  rail.chunk_posted(64, 10);
  rail.chunk_posted(64, 20);
  EXPECT_EQ(rail.busy_ns(25), 15);
  rail.chunk_ended(64, 30);
  rail.chunk_ended(64, 50);
  EXPECT_EQ(rail.busy_ns(100), 40);
  rail.chunk_posted(64, 100);
  EXPECT_EQ(rail.busy_ns(120), 60);
  EXPECT_EQ(rail.in_flight_bytes, 64U);
}

}  // namespace
}  // namespace allrail::transport
