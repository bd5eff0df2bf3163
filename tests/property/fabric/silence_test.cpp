// A peer that was silent answers over all of its rails, though not over all of them at once; and a
// rail that is dead answers nothing.
#include <vector>

#include <gtest/gtest.h>

#include "tests/property/fabric/world.hpp"

namespace allrail::transport {
namespace {

constexpr std::uint64_t kBytes = 100;
constexpr std::int64_t kSilence = 2'000'000'000;

WorldOptions two_rails() {
  WorldOptions options;
  options.rails.resize(2);
  return options;
}

/// Two ranks and two rails.
class Silence : public World {
 public:
  /// Glances are for peers that have been heard of: `glancing` hears of the other.
  explicit Silence(int glancing = 0) : World(two_rails()), data_(kBytes) {
    connect_all();
    for (int i = 0; i < 100; ++i) step();
    const int other = 1 - glancing;
    fabric(other).put({.peer = glancing, .from = data_.data(), .bytes = kBytes});
    const std::uint64_t number = fabric(glancing).expect(other, kBytes);
    EXPECT_TRUE(run_until([&] { return fabric(glancing).arrived(other, number); }, 1'000'000'000));
    fabric(glancing).consume(other, number);
    // Round trips are known, and nothing of it is owed any more.
    put_over_both();
    for (int i = 0; i < 100; ++i) step();
  }

  /// From rank 0 to rank 1, over both rails.
  void put_over_both() {
    for (const int rail : {0, 1}) {
      fabric(0).put({.peer = 1, .from = data_.data(), .bytes = kBytes, .port = rail});
      fabric(1).expect(0, kBytes);
    }
  }

  /// Rank 0 hears nothing, over rail 1 for longer, and asks over both.
  void be_silent(std::int64_t longer_ns) {
    put_over_both();
    for (int rail = 0; rail < 2; ++rail) network().freeze(rail, 1, 0, kSilence + rail * longer_ns);
    for (int i = 0; i < 190; ++i) {
      fabric(0).progress();
      fabric(1).progress();
      pass(kSilence / 200);
    }
  }

  /// From rank 1 to rank 0, over the rail at which a glance looks.
  std::uint64_t put() {
    fabric(1).put({.peer = 0, .from = data_.data(), .bytes = kBytes});
    return fabric(0).expect(1, kBytes);
  }

  std::uint64_t lost_rails() {
    std::uint64_t lost = 0;
    for (const RailCounters& rail : fabric(0).counters()) lost += rail.fences;
    return lost;
  }

 private:
  std::vector<std::byte> data_;
};

// Only the rail that puts come over is looked at: what was said over the other lies there unread.
TEST(Silence, IsNotThatOfARailThatWasNotLookedAt) {
  Silence world;
  world.be_silent(0);
  world.pass(kSilence);
  for (int look = 0; look < 100; ++look) {
    const std::uint64_t number = world.put();
    world.fabric(1).progress();
    world.pass(20'000'000);
    world.fabric(0).glance(1, kBytes);
    ASSERT_TRUE(world.fabric(0).arrived(1, number)) << "look " << look;
    world.fabric(0).consume(1, number);
    ASSERT_EQ(world.lost_rails(), 0U) << "look " << look;
  }
}

// The peer loses its core between its answers over one rail and over the other.
TEST(Silence, IsNotThatOfARailWhoseAnswerComesALittleLater) {
  Silence world;
  for (const int time : {1, 2}) {
    world.be_silent(60'000'000);
    for (int look = 0; look < 200; ++look) {
      world.fabric(0).progress();
      world.fabric(1).progress();
      world.pass(1'000'000);
      ASSERT_EQ(world.lost_rails(), 0U) << "time " << time << " look " << look;
    }
  }
}

// A helper thread looks ten times a second, which is as often as it asks: every look finds an
// answer over the other rail.
TEST(Silence, OfADeadRailIsNoticedByThoseThatLookRarely) {
  for (const std::int64_t pause_ns : {10'000'000, 101'000'000, 250'000'000}) {
    Silence world;
    FakeCut cut;
    cut.silent = true;
    cut.late_chance = 0;
    world.network().cut(1, 0, 1, cut);
    world.put_over_both();
    const std::int64_t end_ns = world.network().now_ns() + 1'500'000'000 + 4 * pause_ns;
    while (world.network().now_ns() < end_ns) {
      world.fabric(0).progress();
      for (int i = 0; i < 10; ++i) {
        world.pass(pause_ns / 10);
        world.fabric(1).progress();
      }
    }
    EXPECT_EQ(world.lost_rails(), 1U) << "looks every " << pause_ns << " ns";
  }
}

// Most looks of the peer are at one rail: what it is asked over, it looks at.
TEST(Silence, IsNotThatOfARailAtWhichThePeerDoesNotLook) {
  Silence world(1);
  world.put_over_both();
  for (const int rail : {0, 1}) world.network().freeze(rail, 0, 1, kSilence / 4);
  for (int look = 0; look < 800; ++look) {
    world.fabric(0).progress();
    world.fabric(1).glance(0, kBytes);
    world.pass(10'000'000);
    ASSERT_EQ(world.lost_rails(), 0U) << "look " << look;
  }
}

}  // namespace
}  // namespace allrail::transport
