// Looks at one peer's link while the others are left alone.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "tests/property/fabric/world.hpp"

namespace allrail::transport {
namespace {

/// Connected over so many rails.
class TwoRanks : public World {
 public:
  explicit TwoRanks(int rails) : World(options_of(rails)) {
    connect_all();
    for (int i = 0; i < 100; ++i) step();
  }
  /// Glances are for peers that have been heard of: rank 0 hears of rank 1.
  bool hear() {
    const std::vector<std::byte> data(100);
    fabric(1).put({.peer = 0, .from = data.data(), .bytes = data.size()});
    const std::uint64_t number = fabric(0).expect(1, data.size());
    if (!run_until([&] { return fabric(0).arrived(1, number); }, 1'000'000'000)) return false;
    fabric(0).consume(1, number);
    return true;
  }

 private:
  static WorldOptions options_of(int rails) {
    WorldOptions options;
    options.rails.resize(static_cast<std::size_t>(rails));
    return options;
  }
};

// A wait may take turns between ports, such as those of a barrier and of a call, whatever rail the
// last chunk came over.
TEST(Glance, AGlanceLooksAtTheRailOfThatPort) {
  constexpr std::uint64_t kBytes = 100;
  for (const int rails : {2, 3}) {
    TwoRanks world(rails);
    Fabric& mine = world.fabric(0);
    Fabric& theirs = world.fabric(1);
    const std::vector<std::byte> data(kBytes, std::byte{3});
    for (int call = 0; call < 20; ++call) {
      std::vector<std::uint64_t> numbers;
      for (int port = call; port < call + rails; ++port) {
        theirs.put({.peer = 0, .from = data.data(), .bytes = kBytes, .port = port});
        numbers.push_back(mine.expect(1, kBytes));
      }
      world.pass(100'000);
      if (call == 0) {
        const auto here = [&] { return mine.arrived(1, numbers.back()); };
        ASSERT_TRUE(world.run_until(here, 1'000'000'000));
      }
      for (int i = 0; i < rails; ++i) {
        const std::uint64_t number = numbers[static_cast<std::size_t>(i)];
        EXPECT_EQ(mine.arrived(1, number), call == 0) << "call " << call << ", put " << i;
        mine.glance(1, kBytes, call + i);
        ASSERT_TRUE(mine.arrived(1, number)) << rails << " rails, call " << call << ", put " << i;
        mine.consume(1, number, call + i);
      }
      theirs.progress();
    }
  }
}

TEST(Glance, ALinkThatEndsUnderAGlanceIsFencedAndItsChunksReplayed) {
  for (const int lost : {0, 1}) {
    TwoRanks world(2);
    Fabric& mine = world.fabric(0);
    Fabric& theirs = world.fabric(1);
    ASSERT_TRUE(world.hear());
    const std::vector<std::byte> data(1U << 17, std::byte{3});
    // All of it is under way at once, half over each rail; then one of them loses it.
    const std::uint64_t number = mine.put({.peer = 1, .from = data.data(), .bytes = data.size()});
    theirs.expect(0, data.size());
    FakeCut cut;
    cut.late_chance = 0;
    world.network().cut(lost, 0, 1, cut);
    const std::int64_t end_ns = world.network().now_ns() + 300'000'000;
    while (!mine.completed(1, number) && world.network().now_ns() < end_ns) {
      const bool any = mine.glance(1, data.size());
      if (!theirs.progress() && !any) world.network().advance(1'000'000);
    }
    EXPECT_TRUE(mine.completed(1, number)) << lost;
    const auto at = static_cast<std::size_t>(lost);
    EXPECT_EQ(mine.counters()[at].fences, 1U);
    EXPECT_GT(mine.counters()[1 - at].replays, 0U);
    EXPECT_TRUE(std::equal(data.begin(), data.end(), world.memory(1).begin()));
  }
}

}  // namespace
}  // namespace allrail::transport
