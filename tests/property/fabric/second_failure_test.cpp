// A rail that fails while the chunks of another one that has failed are sent again over it.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/property/fabric/world.hpp"

namespace allrail::transport {
namespace {

constexpr std::size_t kRails = 3;

/// How many chunks of others a rail of rank 0 has sent again.
std::uint64_t replays(World& world, std::size_t rail) {
  return world.fabric(0).counters()[rail].replays;
}

class SecondFailure : public ::testing::TestWithParam<double> {};

// What was sent again and lost with the second rail goes over the third one.
TEST_P(SecondFailure, DuringTheReplayIsFencedAndReplayedToo) {
  WorldOptions options;
  options.rails.assign(kRails, {});
  for (FakeRailOptions& rail : options.rails) rail.bytes_per_second = 1e8;  // 64 KiB in 0.7 ms
  World world(options);
  Fabric& mine = world.fabric(0);
  Fabric& theirs = world.fabric(1);
  world.connect_all();
  const auto all_up = [&] {
    for (int rail = 0; rail < static_cast<int>(kRails); ++rail)
      if (mine.partner(1, rail) < 0 || theirs.partner(0, rail) < 0) return false;
    return true;
  };
  ASSERT_TRUE(world.run_until(all_up, 1'000'000'000));
  const std::vector<std::byte> data(384U << 10, std::byte{5});
  const std::uint64_t number = mine.put({.peer = 1, .from = data.data(), .bytes = data.size()});
  const std::uint64_t expected = theirs.expect(0, data.size());

  FakeCut cut;
  cut.late_chance = GetParam();
  world.network().cut(0, 0, 1, cut);
  ASSERT_TRUE(
      world.run_until([&] { return replays(world, 1) + replays(world, 2) > 0; }, 1'000'000'000));
  ASSERT_FALSE(theirs.arrived(0, expected));
  const std::size_t second = replays(world, 1) > 0 ? 1 : 2;
  const std::size_t third = kRails - second;
  const std::uint64_t before = replays(world, third);
  world.network().cut(static_cast<int>(second), 0, 1, cut);
  ASSERT_TRUE(world.run_until(
      [&] { return mine.completed(1, number) && theirs.arrived(0, expected); }, 1'000'000'000));

  EXPECT_EQ(mine.counters()[0].fences, 1U);
  EXPECT_EQ(mine.counters()[second].fences, 1U);
  EXPECT_EQ(mine.counters()[third].fences, 0U);
  EXPECT_GT(replays(world, third), before);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), world.memory(1).begin()));
}

// Of what was under way nothing lands after all, or all of it.
INSTANTIATE_TEST_SUITE_P(Late, SecondFailure, testing::Values(0.0, 1.0));

}  // namespace
}  // namespace allrail::transport
