// Whether rails are faster than the processors is told by when chunks leave, and only by those that
// somebody looked at in time.
#include <cstdint>
#include <memory>

#include <gtest/gtest.h>

#include "tests/property/fabric/world.hpp"

namespace allrail::transport {
namespace {

constexpr std::uint64_t kPutBytes = 16'000;
constexpr int kPuts = 2 * PaceMeter::kSamples;

/// Two ranks with one rail between them, if a test does not say otherwise.
class PaceOfRails : public ::testing::Test {
 protected:
  void connect(double bytes_per_second, std::int64_t saved_up_ns = 0) {
    connect(WorldOptions(), bytes_per_second, saved_up_ns);
  }

  void connect(WorldOptions options, double bytes_per_second, std::int64_t saved_up_ns = 0) {
    options.rails[0].bytes_per_second = bytes_per_second;
    options.rails[0].saved_up_ns = saved_up_ns;
    options.fabric.may_hold = true;
    world_ = std::make_unique<World>(options);
    world_->connect_all();
  }

  /// Puts one after the other. After each the sender is away for a while, and looks at nothing.
  void send(int puts, std::int64_t away_ns = 0, std::uint64_t bytes = kPutBytes) {
    for (int i = 0; i < puts; ++i) {
      Put put;
      put.peer = 1;
      put.from = world_->memory(0).data();
      put.bytes = bytes;
      world_->fabric(0).put(put);
      const std::uint64_t number = world_->fabric(1).expect(0, bytes);
      FakeNetwork& network = world_->network();
      const std::int64_t back_ns = network.now_ns() + away_ns;
      while (network.now_ns() < back_ns) network.advance(back_ns - network.now_ns());
      const auto has_come = [&] { return world_->fabric(1).arrived(0, number); };
      // Looks that are far apart would be late themselves.
      for (int steps = 0; !has_come() && steps < 10'000; ++steps) world_->step(10'000);
      ASSERT_TRUE(has_come());
      world_->fabric(1).consume(0, number);
    }
  }

  /// Whether the last puts of a stream of calls, of which nobody looks at any, stay in their rails.
  bool holds_a_stream_of(std::uint64_t bytes) {
    Put put;
    put.peer = 1;
    put.from = world_->memory(0).data();
    put.bytes = bytes;
    put.coalesce = true;
    std::uint64_t last = 0;
    for (int i = 0; i < 8; ++i) {
      put.call = ++call_;
      world_->fabric(0).put(put);
      last = world_->fabric(1).expect(0, bytes);
    }
    const bool holds = world_->fabric(0).holds();
    const auto has_come = [&] { return world_->fabric(1).arrived(0, last); };
    for (int steps = 0; !has_come() && steps < 10'000; ++steps) world_->step(10'000);
    EXPECT_TRUE(has_come());
    for (std::uint64_t i = 0; i < 8; ++i) world_->fabric(1).consume(0, last - i);
    return holds;
  }

  Pace pace() { return world_->fabric(0).pace(); }

 private:
  std::unique_ptr<World> world_;
  std::uint64_t call_ = 0;
};

TEST_F(PaceOfRails, IsFastWhereChunksLeaveAtOnce) {
  connect(1e9);
  EXPECT_EQ(pace(), Pace::Unknown);
  send(kPuts);
  EXPECT_EQ(pace(), Pace::Fast);
}

TEST_F(PaceOfRails, IsSlowWhereTheyAreSeenToStay) {
  connect(5e7);
  send(kPuts);
  EXPECT_EQ(pace(), Pace::Slow);
}

TEST_F(PaceOfRails, IsNotToldByLooksThatComeLate) {
  connect(1e9);
  send(kPuts, 1'000'000);
  EXPECT_EQ(pace(), Pace::Unknown) << "a millisecond is long, but nobody saw them stay";
  send(20 * kPuts);
  EXPECT_EQ(pace(), Pace::Fast);
  send(20 * kPuts, 1'000'000);
  EXPECT_EQ(pace(), Pace::Fast) << "that the process is busy does not make the rail slow";
}

TEST_F(PaceOfRails, IsNotToldByShortChunksThatTakeTurns) {
  WorldOptions two_rails;
  two_rails.rails.resize(2);
  connect(two_rails, 1e9);
  send(20 * kPuts, 0, 5'000);
  EXPECT_EQ(pace(), Pace::Unknown) << "they are watched for their turns alone";
}

TEST_F(PaceOfRails, IsSlowBehindAShaperThatSavesUp) {
  connect(5e7, 2'000'000);  // 100 KB go at once, of what was saved in idle time
  send(20 * kPuts);
  EXPECT_EQ(pace(), Pace::Slow);
}

TEST_F(PaceOfRails, IsSlowWhereWhatAStreamHeldIsSeenToStay) {
  connect(5e7);
  for (int i = 0; i < 100; ++i) holds_a_stream_of(2'000);
  EXPECT_EQ(pace(), Pace::Slow);
}

TEST_F(PaceOfRails, IsNotFastByWhatAStreamHeld) {
  connect(1e9);
  for (int i = 0; i < 100; ++i) holds_a_stream_of(2'000);
  EXPECT_EQ(pace(), Pace::Unknown) << "it says nothing of longer chunks";
}

/// Puts that measure their rails by how long they take would show how long they were held.
TEST_F(PaceOfRails, LongPutsAreHeldOverFastRailsOnly) {
  for (const double rate : {1e9, 5e7}) {
    connect(rate);
    EXPECT_FALSE(holds_a_stream_of(kPutBytes)) << "nothing is known yet";
    EXPECT_TRUE(holds_a_stream_of(8'000));
    send(kPuts);
    EXPECT_EQ(holds_a_stream_of(kPutBytes), rate > 1e8);
    EXPECT_TRUE(holds_a_stream_of(8'000));
    EXPECT_FALSE(holds_a_stream_of(20'000)) << "on any";
  }
}

}  // namespace
}  // namespace allrail::transport
