// How well puts are striped over unequal rails, in virtual time: the fabric is told no rates.
#include <cstdio>

#include <gtest/gtest.h>

#include "tests/property/fabric/world.hpp"

namespace allrail::transport {
namespace {

/// The time of one put of `bytes` from rank 0 to rank 1, over the ideal of all rails together,
/// the last of some puts in a row.
double time_over_ideal(const std::vector<double>& rates, std::uint64_t bytes,
                       std::int64_t delay_ns = 5'000, std::int64_t jitter_ns = 0) {
  WorldOptions options;
  double total_rate = 0;
  options.rails.clear();
  for (const double rate : rates) {
    FakeRailOptions rail;
    rail.bytes_per_second = rate;
    rail.delay_ns = delay_ns;
    rail.jitter_ns = jitter_ns;
    options.rails.push_back(rail);
    total_rate += rate;
  }
  options.memory_bytes = bytes;
  World world(options);
  world.connect_all();
  EXPECT_TRUE(world.run_until([&] { return world.fabric(0).connected(1); }, 1'000'000'000));
  for (int i = 0; i < 1000; ++i) world.step();
  std::vector<std::byte> data(bytes, std::byte{7});
  double worst = 0;
  for (int i = 0; i < 12; ++i) {
    const std::int64_t start_ns = world.network().now_ns();
    Put put;
    put.peer = 1;
    put.from = data.data();
    put.bytes = bytes;
    world.fabric(0).put(put);
    const std::uint64_t number = world.fabric(1).expect(0, bytes);
    EXPECT_TRUE(
        world.run_until([&] { return world.fabric(1).arrived(0, number); }, 10'000'000'000));
    const auto took_ns = static_cast<double>(world.network().now_ns() - start_ns);
    world.fabric(1).consume(0, number);
    for (int s = 0; s < 200; ++s) world.step(100'000);
    const double ideal_ns = static_cast<double>(bytes) / total_rate * 1e9;
    if (i >= 4) worst = std::max(worst, took_ns / ideal_ns);
  }
  std::printf("%.3f of the ideal time\n", worst);
  return worst;
}

TEST(Efficiency, OneRailIsFilled) { EXPECT_LT(time_over_ideal({1e9}, 1U << 20), 1.03); }

TEST(Efficiency, EqualRails) { EXPECT_LT(time_over_ideal({1e9, 1e9}, 1U << 20), 1.03); }

TEST(Efficiency, RailsOfTwoToOne) { EXPECT_LT(time_over_ideal({1e9, 5e8}, 1U << 20), 1.08); }

TEST(Efficiency, RailsOfOneToTwo) { EXPECT_LT(time_over_ideal({5e8, 1e9}, 1U << 20), 1.08); }

TEST(Efficiency, RailsOfTenToOne) { EXPECT_LT(time_over_ideal({1e9, 1e8}, 1U << 20), 1.15); }

TEST(Efficiency, ThreeRails) { EXPECT_LT(time_over_ideal({1e9, 5e8, 2e8}, 1U << 20), 1.12); }

TEST(Efficiency, LongDelay) { EXPECT_LT(time_over_ideal({1e9, 1e9}, 4U << 20, 500'000), 1.5); }

/// As a ring of medium blocks through shapers that save up what was not sent: each put begins a
/// moment after the one before has arrived. The time of some hundred puts over the ideal.
double stream_over_ideal(const std::vector<double>& rates, std::uint64_t bytes) {
  constexpr int kPuts = 200;
  constexpr int kFirst = 40;  // until shares are known
  WorldOptions options;
  options.rails.clear();
  double total_rate = 0;
  for (const double rate : rates) {
    FakeRailOptions rail;
    rail.bytes_per_second = rate;
    rail.jitter_ns = 20'000;
    rail.saved_up_ns = 4'000'000;
    options.rails.push_back(rail);
    total_rate += rate;
  }
  options.memory_bytes = bytes;
  World world(options);
  world.connect_all();
  EXPECT_TRUE(world.run_until([&] { return world.fabric(0).connected(1); }, 1'000'000'000));
  const std::vector<std::byte> data(bytes, std::byte{7});
  std::int64_t begin_ns = 0;
  for (int i = 0; i < kPuts; ++i) {
    if (i == kFirst) begin_ns = world.network().now_ns();
    Put put;
    put.peer = 1;
    put.from = data.data();
    put.bytes = bytes;
    world.fabric(0).put(put);
    const std::uint64_t number = world.fabric(1).expect(0, bytes);
    EXPECT_TRUE(
        world.run_until([&] { return world.fabric(1).arrived(0, number); }, 10'000'000'000));
    world.fabric(1).consume(0, number);
    const std::int64_t next_ns = world.network().now_ns() + 50'000;
    while (world.network().now_ns() < next_ns) world.step(10'000);
  }
  const auto took_ns = static_cast<double>(world.network().now_ns() - begin_ns);
  const double ideal_ns = static_cast<double>(bytes) * (kPuts - kFirst) / total_rate * 1e9;
  std::printf("%.3f of the ideal time\n", took_ns / ideal_ns);
  return took_ns / ideal_ns;
}

TEST(Efficiency, AStreamOfMediumPuts) {
  EXPECT_LT(stream_over_ideal({6e7, 3e7}, 128U << 10), 1.03);
  EXPECT_LT(stream_over_ideal({3e7, 6e7}, 512U << 10), 1.03);
  EXPECT_LT(stream_over_ideal({6e7, 6e7}, 128U << 10), 1.03);
  EXPECT_LT(stream_over_ideal({6e7, 6e6}, 128U << 10), 1.06);
  EXPECT_LT(stream_over_ideal({6e7, 3e7, 2e7}, 256U << 10), 1.03);
}

TEST(Efficiency, JitterOnUnequalRails) {
  EXPECT_LT(time_over_ideal({1e9, 5e8}, 1U << 20, 5'000, 20'000), 1.15);
}

}  // namespace
}  // namespace allrail::transport
