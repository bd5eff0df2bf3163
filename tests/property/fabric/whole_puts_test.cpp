// Puts of medium size stay whole on fast rails, also in a stream that goes one way only.
#include <cstdint>
#include <deque>

#include <gtest/gtest.h>

#include "tests/property/fabric/world.hpp"

namespace allrail::transport {
namespace {

constexpr std::uint64_t kPutBytes = 22'000;  // cut in two, if it is cut
constexpr std::uint64_t kOpenPuts = 12;      // so many calls may be under way

/// Chunks per put of the second half of a stream from rank 0 to rank 1, over two such rails.
double chunks_per_put(double bytes_per_second) {
  WorldOptions options;
  FakeRailOptions rail;
  rail.bytes_per_second = bytes_per_second;
  options.rails = {rail, rail};
  World world(options);
  world.connect_all();
  Fabric& from = world.fabric(0);
  Fabric& to = world.fabric(1);
  const auto chunks_sent = [&] {
    std::uint64_t chunks = 0;
    for (const RailCounters& one : from.counters()) chunks += one.chunks_sent;
    return chunks;
  };
  const auto stream = [&](std::uint64_t puts) {
    std::deque<std::uint64_t> open;
    for (std::uint64_t i = 0; i < puts + kOpenPuts; ++i) {
      if (i >= kOpenPuts) {
        const std::uint64_t oldest = open.front();
        open.pop_front();
        ASSERT_TRUE(world.run_until([&] { return to.arrived(0, oldest); }, 1'000'000'000));
        to.consume(0, oldest);
      }
      if (i >= puts) continue;
      Put put;
      put.peer = 1;
      put.from = world.memory(0).data();
      put.bytes = kPutBytes;
      put.offset = i % kOpenPuts * kPutBytes;
      from.put(put);
      open.push_back(to.expect(0, kPutBytes));
    }
  };
  stream(200);
  const std::uint64_t before = chunks_sent();
  stream(200);
  return static_cast<double>(chunks_sent() - before) / 200;
}

TEST(WholePuts, StayWholeInAStreamOverFastRails) { EXPECT_LT(chunks_per_put(1e9), 1.1); }

TEST(WholePuts, AreCutInAStreamOverSlowRails) { EXPECT_GT(chunks_per_put(5e7), 1.9); }

}  // namespace
}  // namespace allrail::transport
