#include "transport/striping.hpp"

#include <gtest/gtest.h>

#include "transport/fabric.hpp"
#include "transport/pace.hpp"

namespace allrail::transport {
namespace {

TEST(ChunkBytes, UpToTheThresholdAPutIsOneChunk) {
  const FabricOptions options;
  EXPECT_EQ(chunk_bytes_of(1, 4, options, 1U << 20), 1U);
  EXPECT_EQ(chunk_bytes_of(options.stripe_threshold_bytes, 4, options, 1U << 20), 16U * 1024);
}

TEST(ChunkBytes, EveryRailGetsAboutEightChunks) {
  const FabricOptions options;
  EXPECT_EQ(chunk_bytes_of(1U << 20, 2, options, 1U << 20), 64U * 1024);
  EXPECT_EQ(chunk_bytes_of(17 * 1024, 4, options, 1U << 20), 17U * 1024 / 4);
  EXPECT_EQ(chunk_bytes_of(64U << 20, 2, options, 1U << 20), 256U * 1024);
}

TEST(ChunkBytes, AreEvenWhereAFewBytesWouldBeLeft) {
  const FabricOptions options;
  EXPECT_EQ(cut_put(16448, chunk_bytes_of(16448, 2, options, 1U << 20)).count, 2U);
  EXPECT_EQ(cut_put(65600, chunk_bytes_of(65600, 2, options, 1U << 20)).count, 8U);
}

TEST(ChunkBytes, AreAsManyForEveryRail) {
  const FabricOptions options;
  for (std::uint64_t bytes = 17'000; bytes < 3'000'000; bytes += 4'321)
    for (int rails = 1; rails <= 4; ++rails) {
      const Cut cut = cut_put(bytes, chunk_bytes_of(bytes, rails, options, 1U << 20, {62.5e6}));
      ASSERT_EQ(cut.count % static_cast<std::uint32_t>(rails), 0U) << bytes << " over " << rails;
    }
}

TEST(ChunkBytes, TheSettingWins) {
  FabricOptions options;
  options.chunk_bytes = 5000;
  EXPECT_EQ(chunk_bytes_of(1U << 20, 2, options, 1U << 20), 5000U);
}

TEST(ChunkBytes, CutsCoverThePutOnceInFewEnoughChunks) {
  const FabricOptions options;
  for (std::uint64_t bytes = 1; bytes < (std::uint64_t{1} << 33); bytes = bytes * 7 / 3 + 1)
    for (int rails = 1; rails <= kMaxRails; ++rails) {
      const Cut cut = cut_put(bytes, chunk_bytes_of(bytes, rails, options, 1U << 30));
      ASSERT_LE(cut.count, static_cast<std::uint32_t>(kMaxChunksPerPut)) << bytes;
      std::uint64_t sum = 0;
      for (std::uint32_t i = 0; i < cut.count; ++i) {
        ASSERT_EQ(cut.offset(i), sum);
        ASSERT_GT(cut.bytes(i), 0U);
        sum += cut.bytes(i);
      }
      ASSERT_EQ(sum, bytes);
    }
}

TEST(RateMeter, MeasuresASteadyStream) {
  RateMeter meter;
  RateMeter::Stamp first = meter.posted(0);
  RateMeter::Stamp second = meter.posted(0);
  for (int i = 1; i <= 40; ++i) {  // 1000 bytes every microsecond, two in flight
    meter.completed(i * 1000, (i - 2) * 1000, first, 1000, true);
    first = second;
    second = meter.posted(i * 1000);
  }
  EXPECT_NEAR(meter.bytes_per_second(), 1e9, 1e7);
}

TEST(RateMeter, ForgetsAFasterPast) {
  RateMeter meter;
  std::int64_t now_ns = 0;
  for (int i = 0; i < 20; ++i) {
    const auto stamp = meter.posted(now_ns);
    meter.completed(now_ns + 1000, now_ns, stamp, 1000, true);
    now_ns += 1000;
  }
  EXPECT_NEAR(meter.bytes_per_second(), 1e9, 1e6);
  for (int i = 0; i < 16; ++i) {
    const auto stamp = meter.posted(now_ns);
    meter.completed(now_ns + 10'000, now_ns, stamp, 1000, true);
    now_ns += 10'000;
  }
  EXPECT_NEAR(meter.bytes_per_second(), 1e8, 1e6);
}

TEST(RateMeter, DoesNotBelieveAShortBurst) {
  RateMeter meter;
  std::int64_t now_ns = 0;
  for (int i = 0; i < 64; ++i) {  // every sixteenth chunk meets a full bucket
    const auto stamp = meter.posted(now_ns);
    const std::int64_t took_ns = i % 16 == 0 ? 100 : 1000;
    meter.completed(now_ns + took_ns, now_ns, stamp, 1000, true);
    now_ns += took_ns;
  }
  EXPECT_NEAR(meter.bytes_per_second(), 1e9, 1e6);
}

TEST(RateMeter, SmallPutsDoNotLowerTheRate) {
  RateMeter meter;
  meter.completed(1000, 0, meter.posted(0), 1000, true);
  for (int i = 0; i < 100; ++i) {
    const auto stamp = meter.posted(i * 10'000 + 1000);
    meter.completed(i * 10'000 + 6000, i * 10'000 + 1000, stamp, 8, false);
  }
  EXPECT_NEAR(meter.bytes_per_second(), 1e9, 1e6);
}

TEST(RateMeter, SmallPutsAreNoFirstSample) {
  RateMeter meter;
  meter.completed(50'000, 0, meter.posted(0), 100, false);
  EXPECT_EQ(meter.bytes_per_second(), 0) << "2 MB/s would keep every large put away";
  meter.completed(200'000, 100'000, meter.posted(100'000), 10'000, true);
  EXPECT_NEAR(meter.bytes_per_second(), 1e8, 1e6);
}

constexpr std::uint32_t kWatchedBytes = 16 * 1024;

void leave(DepartureMeter& meter, int chunks, std::int64_t took_ns) {
  for (int i = 0; i < chunks; ++i) meter.left(took_ns, kWatchedBytes);
}

TEST(DepartureMeter, TellsARailThatProcessorsWaitFor) {
  DepartureMeter meter;
  leave(meter, DepartureMeter::kSamples - 1, 20'000);
  EXPECT_FALSE(meter.is_fast()) << "too early to tell";
  leave(meter, 1, 20'000);
  EXPECT_TRUE(meter.is_fast());
  EXPECT_NEAR(meter.ns_per_byte(), 20'000.0 / kWatchedBytes, 1e-9);
  leave(meter, 1, 2'000'000);
  EXPECT_TRUE(meter.is_fast()) << "the sender may have lost its core once";
  leave(meter, 1, 2'000'000);
  EXPECT_FALSE(meter.is_fast());
  leave(meter, DepartureMeter::kSamples - 2, 20'000);
  EXPECT_FALSE(meter.is_fast());
  leave(meter, 1, 20'000);
  EXPECT_TRUE(meter.is_fast()) << "that is forgotten";
}

TEST(DepartureMeter, IsNotMisledByWhatAShaperSavesUp) {
  // 16 KiB take 262 us at 500 Mbit/s; of every ten chunks nine go out of what was saved up.
  DepartureMeter meter;
  bool ever = false;
  for (int i = 0; i < 1000; ++i) {
    leave(meter, 1, i % 10 == 5 ? 262'000 : 20'000);
    ever = ever || meter.is_fast();
  }
  EXPECT_FALSE(ever);
}

TEST(ChunkBytes, AreShortOnVerySlowRails) {
  const FabricOptions options;
  EXPECT_EQ(chunk_bytes_of(1U << 20, 2, options, 1U << 20, {62.5e6}), 64U * 1024);
  EXPECT_EQ(chunk_bytes_of(1U << 20, 2, options, 1U << 20, {5e6}), 64U * 1024);
  EXPECT_EQ(cut_put(1U << 20, chunk_bytes_of(1U << 20, 2, options, 1U << 20, {1e6})).count, 52U)
      << "in 20 ms it carries 20 KB";
  EXPECT_EQ(chunk_bytes_of(1U << 20, 2, options, 1U << 20, {1e5}), 8U * 1024);
  EXPECT_EQ(chunk_bytes_of(1U << 20, 2, options, 1U << 20, {4e8}), 64U * 1024);
  EXPECT_EQ(chunk_bytes_of(64U << 20, 2, options, 1U << 20, {1e6}), 64U * 1024)
      << "a put has at most 1,024 chunks, however slow the rail";
}

TEST(ChunkBytes, AreLongOnFastRails) {
  const FabricOptions options;
  EXPECT_EQ(cut_put(65'600, chunk_bytes_of(65'600, 2, options, 1U << 20, {4e8})).count, 2U);
  // A tenth of a millisecond at 100 MB/s, and the more the faster: four times as long from 400 on.
  EXPECT_EQ(chunk_bytes_of(64U << 10, 2, options, 1U << 20, {1e8}), 10'944U);
  EXPECT_EQ(cut_put(1U << 20, chunk_bytes_of(1U << 20, 2, options, 1U << 20, {2e8, 0, true})).count,
            16U);
  EXPECT_EQ(cut_put(1U << 20, chunk_bytes_of(1U << 20, 2, options, 1U << 20, {4e8, 0, true})).count,
            6U);
  EXPECT_EQ(cut_put(1U << 20, chunk_bytes_of(1U << 20, 2, options, 1U << 20, {4e8})).count, 16U)
      << "where one is to take less than the other";
  EXPECT_EQ(chunk_bytes_of(8U << 20, 2, options, 1U << 20, {5e9}), 256U * 1024);
  EXPECT_EQ(cut_put(100'000, chunk_bytes_of(100'000, 4, options, 1U << 20, {5e9})).count, 4U)
      << "every rail has its part, however fast it is";
}

TEST(ChunkBytes, AreThePutWhereARailCarriesItAtOnce) {
  FabricOptions options;
  const auto chunks = [&](std::uint64_t bytes, double wire_ns_per_byte) {
    const auto chunk =
        chunk_bytes_of(bytes, 2, options, 1U << 20, {62.5e6, wire_ns_per_byte, false});
    return cut_put(bytes, chunk).count;
  };
  EXPECT_EQ(chunks(65'600, 1), 1U);
  EXPECT_EQ(chunks(65'600, 4), 8U) << "takes more than 150 us";
  EXPECT_EQ(chunks(128 * 1024, 0.1), 1U);
  EXPECT_GT(chunks(128 * 1024 + 1, 0.1), 1U);
  EXPECT_EQ(chunks(16'448, 16), 2U) << "500 Mbit/s";
  EXPECT_EQ(chunks(16'448, 0), 2U) << "nothing was measured yet";
  options.stripe_threshold_bytes = 0;
  EXPECT_GT(chunks(16'448, 0.1), 1U) << "everything is to be striped";
}

TEST(ChunkBytes, AreThePutOf16KiBWhereRailsAreAlike) {
  FabricOptions options;
  const auto chunks = [&](std::uint64_t bytes, double slowest, bool are_alike) {
    return cut_put(bytes, chunk_bytes_of(bytes, 2, options, 1U << 20, {slowest, 0, are_alike}))
        .count;
  };
  EXPECT_EQ(chunks(16'448, 62e6, true), 1U);
  EXPECT_EQ(chunks(16'448, 62e6, false), 2U) << "turns would load the slower rail as much";
  EXPECT_EQ(chunks(16'448, 12.5e6, true), 2U) << "alone it would take 1.3 ms instead of 0.7";
  EXPECT_EQ(chunks(16'448, 0, false), 2U) << "nothing was measured yet";
  EXPECT_GT(chunks(24U << 10, 62e6, true), 1U);
  options.stripe_threshold_bytes = 0;
  EXPECT_EQ(chunks(16'448, 62e6, true), 2U) << "everything is to be striped";
}

TEST(ChunkBytes, RatesAreAlikeWithinTheirNoise) {
  EXPECT_TRUE(rates_are_alike(52e6, 63e6));
  EXPECT_FALSE(rates_are_alike(31e6, 63e6));
  EXPECT_FALSE(rates_are_alike(0, 63e6)) << "one is not known yet";
}

TEST(WireTime, IsWhatAChunkTakesBeyondTheRoundTrip) {
  WireTimeMeter meter;
  EXPECT_EQ(meter.ns_per_byte(), 0);
  meter.completed(50'000, 30'000, 10'000);
  EXPECT_DOUBLE_EQ(meter.ns_per_byte(), 2);
  meter.completed(30'000, 30'000, 10'000);
  EXPECT_DOUBLE_EQ(meter.ns_per_byte(), 2) << "the upper one of two: less than nothing is noise";
}

TEST(WireTime, ARailThatIsNeverEmptyIsNotTakenForAFastOne) {
  WireTimeMeter meter;
  // 16 KiB at 500 Mbit/s, each behind another.
  for (int i = 0; i < 16; ++i) meter.completed(262'000, 262'000, 16'384);
  EXPECT_GT(meter.ns_per_byte(), 13);
}

TEST(WireTime, NeitherASlowPeerNorSavedCreditDecides) {
  WireTimeMeter meter;
  for (int i = 0; i < 16; ++i) meter.completed(i % 3 == 0 ? 9'000'000 : 60'000, 20'000, 10'000);
  EXPECT_DOUBLE_EQ(meter.ns_per_byte(), 4);
  for (int i = 0; i < 16; ++i) meter.completed(i % 3 == 0 ? 21'000 : 180'000, 20'000, 10'000);
  EXPECT_DOUBLE_EQ(meter.ns_per_byte(), 16);
}

TEST(RateMeter, AnAcknowledgementThatIsHeldBackHidesNoRate) {
  RateMeter meter;
  const auto before = meter.posted(0);
  const auto stamp = meter.posted(900'000);
  meter.completed(910'000, 0, before, 100, false);
  meter.completed(1'000'000, 900'000, stamp, 100'000, true);
  EXPECT_NEAR(meter.bytes_per_second(), 1e9, 1e6) << "100,000 bytes in 100 us of their own";
}

TEST(RoundTrip, QueueingOnABusyRailDoesNotRaiseIt) {
  RoundTripMeter meter;
  meter.completed(1000, true);
  for (int i = 0; i < 100; ++i) meter.completed(9000, false);
  EXPECT_EQ(meter.round_trip_ns(), 1000);
  for (int i = 0; i < 8; ++i) meter.completed(5000, true);
  EXPECT_EQ(meter.round_trip_ns(), 5000) << "a longer path must be believed at last";
}

TEST(Window, HasBounds) {
  EXPECT_EQ(link_window_bytes(1000, 0, 0, 0), kMinWindowBytes);
  EXPECT_EQ(link_window_bytes(1000, 1e9, 100'000, 0), kMinWindowBytes);
  EXPECT_EQ(link_window_bytes(1000, 1e9, 1'000'000, 0), 2'000'000U);
  EXPECT_EQ(link_window_bytes(1000, 1e12, 1'000'000'000, 0), kMaxWindowBytes);
  EXPECT_EQ(link_window_bytes(8U << 20, 1e9, 1000, 0), 16U << 20);
}

TEST(Window, IsAcknowledgedBeforeTheRailSendsAgain) {
  constexpr std::int64_t kResendNs = 67'000'000;
  // 40 Mbit/s: an eighth of a second would be in flight in 1 MiB.
  EXPECT_EQ(link_window_bytes(8192, 5e6, 100'000'000, kResendNs), 167'500U);
  EXPECT_EQ(link_window_bytes(8192, 1e6, 1'000'000, kResendNs), kLeastWindowBytes);
  EXPECT_EQ(link_window_bytes(8192, 0, 0, kResendNs), kLeastWindowBytes) << "nothing is known yet";
  EXPECT_EQ(link_window_bytes(8192, 1e9, 1'000'000, kResendNs), 2'000'000U) << "a fast rail";
}

TEST(Window, IsLongerWhereAnAdapterGoesOnByItself) {
  constexpr std::int64_t kResendNs = 67'000'000;
  EXPECT_EQ(link_window_bytes(8192, 1e8, 100'000, kResendNs), kAdapterWindowBytes);
  EXPECT_EQ(link_window_bytes(8192, 1e8, 100'000, 0), kMinWindowBytes);
}

TEST(ChooseRail, TakesTheOneThatFinishesFirst) {
  const RailChoice rails[] = {{true, true, 1e9, 3000}, {true, true, 1e9, 1000}};
  EXPECT_EQ(choose_rail(rails, 1000, 100'000), 1);
}

TEST(ChooseRail, WithoutRoomOrLinksNothingIsTaken) {
  const RailChoice rails[] = {{true, false, 1e9, 0}, {false, true, 1e9, 0}};
  EXPECT_EQ(choose_rail(rails, 1000, 100'000), -1);
}

TEST(ChooseRail, ASlowRailLeavesTheEndToTheFastOne) {
  const RailChoice rails[] = {{true, false, 1e9, 2000}, {true, true, 1e8, 0}};
  EXPECT_EQ(choose_rail(rails, 1000, 1000), -1);
  EXPECT_EQ(choose_rail(rails, 1000, 20'000), 1) << "in the middle of a put it helps";
}

TEST(ChooseRail, RatesThatAreAlikeGetEqualParts) {
  // By the rates as they are, the second rail would get nine of sixteen chunks.
  std::array<RailChoice, 2> rails{{{true, true, 90e6, 0}, {true, true, 110e6, 0}}};
  std::array<int, 2> taken{};
  for (std::uint64_t left = 16; left > 0; --left) {
    const int rail = choose_rail(rails, 1000, left * 1000);
    ASSERT_GE(rail, 0);
    ++taken[static_cast<std::size_t>(rail)];
    rails[static_cast<std::size_t>(rail)].in_flight_bytes += 1000;
  }
  EXPECT_EQ(taken[0], 8);
  EXPECT_EQ(taken[1], 8);
}

TEST(ChooseRail, WhoIsAheadOfItsShareGetsLess) {
  RailChoice rails[] = {{true, true, 1e9, 0, 2000}, {true, true, 1e9, 1000, 0}};
  EXPECT_EQ(choose_rail(rails, 1000, 100'000), 1);
  rails[1].bytes_per_second = 5e8;
  EXPECT_EQ(choose_rail(rails, 1000, 100'000), 0)
      << "half as fast, it would need 4 us instead of 3";
  rails[0].ahead_bytes = 4000;
  EXPECT_EQ(choose_rail(rails, 1000, 100'000), 1) << "and now 4 us instead of 5";
}

TEST(AddAhead, CountsWhatARailHasCarriedBeyondItsShare) {
  std::array<RailChoice, 2> rails = {{{true, true, 2e6, 0}, {true, true, 1e6, 0}}};
  add_ahead(rails, 0, 3000);
  EXPECT_DOUBLE_EQ(rails[0].ahead_bytes, 1000);
  EXPECT_DOUBLE_EQ(rails[1].ahead_bytes, -1000);
  add_ahead(rails, 1, 1500);
  EXPECT_DOUBLE_EQ(rails[0].ahead_bytes, 0);
  EXPECT_DOUBLE_EQ(rails[1].ahead_bytes, 0) << "both have carried two parts of three and one";
  add_ahead(rails, 1, 1000 * static_cast<std::uint64_t>(kMaxAheadBytes));
  EXPECT_DOUBLE_EQ(rails[0].ahead_bytes, -kMaxAheadBytes) << "it is not kept for ever";
  EXPECT_DOUBLE_EQ(rails[1].ahead_bytes, kMaxAheadBytes);
}

TEST(AddAhead, SharesAmongThoseThatAreUsable) {
  std::array<RailChoice, 3> rails = {{{true, true, 1e6, 0}, {false, false, 1e6, 0}, {true, true}}};
  add_ahead(rails, 0, 3000);
  EXPECT_DOUBLE_EQ(rails[0].ahead_bytes, 1500);
  EXPECT_DOUBLE_EQ(rails[1].ahead_bytes, 0);
  EXPECT_DOUBLE_EQ(rails[2].ahead_bytes, -1500) << "one that was not measured is like the others";
}

TEST(ChooseRail, UnknownRatesAreEqual) {
  const RailChoice rails[] = {{true, false, 0, 2000}, {true, true, 0, 0}};
  EXPECT_EQ(choose_rail(rails, 1000, 1000), 1);
}

}  // namespace
}  // namespace allrail::transport
