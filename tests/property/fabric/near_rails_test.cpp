// Small puts end near to who receives, whatever the rails are called at either end.
#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tests/property/fabric/world.hpp"

namespace allrail::transport {
namespace {

using Chunks = std::vector<std::uint64_t>;

/// Three rails each; rail i of rank 0 meets rail (i + 1) mod 3 of rank 1.
class NearRails : public ::testing::Test {
 protected:
  static WorldOptions crossed(double bytes_per_second) {
    WorldOptions options;
    options.rails.resize(3);
    for (FakeRailOptions& rail : options.rails) rail.bytes_per_second = bytes_per_second;
    options.cables = {{0, 1, 2}, {2, 0, 1}};
    return options;
  }

  /// Rank 1 runs near these of its rails.
  void connect(std::vector<bool> near) {
    PeerRails rails = world_.rails_of(0, 1);
    for (std::size_t i = 0; i < near.size(); ++i) rails.rails[i].is_near = near[i];
    world_.fabric(0).connect(1, rails);
    world_.fabric(1).connect(0, world_.rails_of(1, 0));
    ASSERT_TRUE(world_.run_until(
        [&] {
          return world_.fabric(0).partner(1, 0) == 1 && world_.fabric(0).partner(1, 1) == 2 &&
                 world_.fabric(0).partner(1, 2) == 0;
        },
        10'000'000'000));
  }

  void put(std::size_t bytes, int port) {
    const std::vector<std::byte> data(bytes);
    Put put;
    put.peer = 1;
    put.from = data.data();
    put.bytes = bytes;
    put.port = port;
    world_.fabric(0).put(put);
    const std::uint64_t number = world_.fabric(1).expect(0, bytes);
    ASSERT_TRUE(
        world_.run_until([&] { return world_.fabric(1).arrived(0, number); }, 1'000'000'000));
    world_.fabric(1).consume(0, number);
    ASSERT_TRUE(
        world_.run_until([&] { return world_.fabric(0).completed(1, number); }, 1'000'000'000));
  }

  std::vector<std::uint64_t> chunks() {
    std::vector<std::uint64_t> sent;
    for (const RailCounters& rail : world_.fabric(0).counters()) sent.push_back(rail.chunks_sent);
    return sent;
  }

  explicit NearRails(double bytes_per_second = 1e9) : world_(crossed(bytes_per_second)) {}

  World world_;
};

/// So slow that a put of 17,000 bytes is worth cutting, and no slower.
class SlowNearRails : public NearRails {
 protected:
  SlowNearRails() : NearRails(7e7) {}

  /// Of a put of that size, once the rails have been measured.
  std::uint64_t chunks_of_a_put() {
    for (int i = 0; i < 40; ++i) put(100'000, i);
    const Chunks before = chunks();
    put(17'000, 0);
    const Chunks after = chunks();
    return std::accumulate(after.begin(), after.end(), std::uint64_t{0}) -
           std::accumulate(before.begin(), before.end(), std::uint64_t{0});
  }
};

TEST_F(NearRails, SmallPutsTakeTurnsOnThoseThatEndNearTheReceiver) {
  connect({true, true, false});
  for (int port = 0; port < 12; ++port) put(100, port);
  EXPECT_EQ(chunks(), (Chunks{6, 0, 6})) << "rail 1 ends at rail 2, which is far";
}

TEST_F(NearRails, LargePutsTakeAll) {
  connect({true, false, false});
  put(1U << 18, 0);
  for (const std::uint64_t sent : chunks()) EXPECT_GT(sent, 0U);
}

TEST_F(NearRails, AllAreAlikeWhereNoneIsNear) {
  connect({false, false, false});
  for (int port = 0; port < 12; ++port) put(100, port);
  EXPECT_EQ(chunks(), (Chunks{4, 4, 4}));
}

TEST_F(NearRails, FarOnesServeWhereTheNearOneIsLost) {
  connect({true, false, false});
  put(100, 0);
  EXPECT_EQ(chunks(), (Chunks{0, 0, 1}));
  world_.network().cut({0, 2}, {1, 0}, {});
  ASSERT_TRUE(world_.run_until(
      [&] {
        const auto before = chunks();
        put(100, 0);
        const auto after = chunks();
        return after[0] + after[1] > before[0] + before[1];
      },
      1'000'000'000));
}

TEST_F(SlowNearRails, MediumPutsStayWholeWhereAllTakeTurns) {
  connect({false, false, false});
  EXPECT_EQ(chunks_of_a_put(), 1U);
}

TEST_F(SlowNearRails, MediumPutsAreCutWhereOnlyNearOnesWould) {
  connect({false, true, false});
  EXPECT_GT(chunks_of_a_put(), 1U);
}

}  // namespace
}  // namespace allrail::transport
