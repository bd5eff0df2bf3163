// Puts of medium size stay whole on fast rails, also in a stream that goes one way only, and those
// that are cut mostly ask for no acknowledgements of their own there.
#include <cstdint>
#include <deque>

#include <gtest/gtest.h>

#include "tests/property/fabric/world.hpp"

namespace allrail::transport {
namespace {

constexpr std::uint64_t kPutBytes = 22'000;  // cut in two, if it is cut
constexpr std::uint64_t kLongPutBytes = 400'000;
constexpr std::uint64_t kOpenPuts = 12;  // so many calls may be under way

struct PerPut {
  double chunks = 0;
  double bulk_chunks = 0;
};

/// Of the second half of a stream from rank 0 to rank 1, over two such rails.
PerPut chunks_per_put(const FakeRailOptions& rail, std::uint64_t put_bytes = kPutBytes,
                      std::uint64_t open_puts = kOpenPuts) {
  WorldOptions options;
  options.rails = {rail, rail};
  options.memory_bytes = open_puts * put_bytes;
  World world(options);
  world.connect_all();
  Fabric& from = world.fabric(0);
  Fabric& to = world.fabric(1);
  const auto chunks_sent = [&] {
    PerPut chunks;
    for (const RailCounters& one : from.counters())
      chunks.chunks += static_cast<double>(one.chunks_sent);
    for (const int number : {0, 1}) {
      const std::uint64_t bulk = world.network().use({0, number}, {1, number}).bulk_chunks;
      chunks.bulk_chunks += static_cast<double>(bulk);
    }
    return chunks;
  };
  const auto stream = [&](std::uint64_t puts) {
    std::deque<std::uint64_t> open;
    for (std::uint64_t i = 0; i < puts + open_puts; ++i) {
      if (i >= open_puts) {
        const std::uint64_t oldest = open.front();
        open.pop_front();
        // One that is alone is completed, too, before the next one begins.
        const auto is_done = [&] {
          return to.arrived(0, oldest) && (open_puts > 1 || from.completed(1, oldest));
        };
        ASSERT_TRUE(world.run_until(is_done, 1'000'000'000));
        to.consume(0, oldest);
      }
      if (i >= puts) continue;
      Put put;
      put.peer = 1;
      put.from = world.memory(0).data();
      put.bytes = put_bytes;
      put.offset = i % open_puts * put_bytes;
      from.put(put);
      open.push_back(to.expect(0, put_bytes));
    }
  };
  stream(200);
  const PerPut before = chunks_sent();
  stream(200);
  const PerPut after = chunks_sent();
  return {(after.chunks - before.chunks) / 200, (after.bulk_chunks - before.bulk_chunks) / 200};
}

FakeRailOptions rail_of(double bytes_per_second) {
  FakeRailOptions rail;
  rail.bytes_per_second = bytes_per_second;
  return rail;
}

TEST(WholePuts, StayWholeInAStreamOverFastRails) {
  EXPECT_LT(chunks_per_put(rail_of(1e9)).chunks, 1.1);
}

TEST(WholePuts, StayWholeWhereAcknowledgementsComeLate) {
  // As where processes wait for a core: what a chunk takes until it is acknowledged says nothing.
  FakeRailOptions rail = rail_of(1e9);
  rail.delay_ns = 400'000;
  EXPECT_LT(chunks_per_put(rail, kPutBytes, 1).chunks, 1.1);
}

TEST(WholePuts, AreCutInAStreamOverSlowRails) {
  EXPECT_GT(chunks_per_put(rail_of(5e7)).chunks, 1.9);
}

TEST(WholePuts, AreCutOverShapedRailsThatHaveSavedUp) {
  FakeRailOptions rail = rail_of(5e7);
  rail.saved_up_ns = 2'000'000;  // 100 KB go at once
  EXPECT_GT(chunks_per_put(rail).chunks, 1.9);
}

TEST(LongPuts, AreMeasuredWhereRailsAreSlow) {
  const PerPut slow = chunks_per_put(rail_of(5e7), kLongPutBytes, 1);
  EXPECT_GT(slow.chunks, 1.9);
  EXPECT_EQ(slow.bulk_chunks, slow.chunks);
}

TEST(LongPuts, AreRarelyMeasuredWhereRailsAreFast) {
  const PerPut fast = chunks_per_put(rail_of(1e9), kLongPutBytes, 1);
  EXPECT_GT(fast.chunks, 1.9);
  EXPECT_LT(fast.bulk_chunks, fast.chunks / 2);
  EXPECT_GT(fast.bulk_chunks, fast.chunks / 16) << "one in eight is";
}

}  // namespace
}  // namespace allrail::transport
