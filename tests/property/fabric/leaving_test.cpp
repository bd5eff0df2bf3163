// What a rank that leaves asks before it goes.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "tests/property/fabric/world.hpp"

namespace allrail::transport {
namespace {

constexpr std::size_t kBytes = 64U << 10;
constexpr std::int64_t kSecond = 1'000'000'000;

class Leaving : public ::testing::Test {
 protected:
  Leaving() {
    world_.connect_all();
    EXPECT_TRUE(
        world_.run_until([this] { return mine_.connected(1) && theirs_.connected(0); }, kSecond));
  }
  static WorldOptions slow_rails() {
    WorldOptions options;
    options.rails.resize(2);
    for (FakeRailOptions& rail : options.rails) rail.bytes_per_second = 1e6;
    return options;
  }

  World world_{slow_rails()};
  Fabric& mine_ = world_.fabric(0);
  Fabric& theirs_ = world_.fabric(1);
};

TEST_F(Leaving, IsTooEarlyWhileAnythingIsOnItsWay) {
  EXPECT_TRUE(mine_.delivered());
  const std::vector<std::byte> data(kBytes, std::byte{5});
  mine_.put({.peer = 1, .from = data.data(), .bytes = kBytes});
  EXPECT_FALSE(mine_.delivered());
  const std::uint64_t number = theirs_.expect(0, kBytes);
  ASSERT_TRUE(world_.run_until([this] { return mine_.flushed(); }, kSecond));
  EXPECT_FALSE(mine_.delivered());
  // The peer does not look any more.
  for (int i = 0; i < 1000 && !mine_.delivered(); ++i) {
    mine_.progress();
    world_.pass(1'000'000);
  }
  EXPECT_TRUE(mine_.delivered());
  theirs_.progress();
  EXPECT_TRUE(theirs_.arrived(0, number));
}

TEST_F(Leaving, IsTooEarlyWhileNoLinkToAPeerIsUp) {
  EXPECT_FALSE(mine_.is_cut_off());
  for (const int rail : {0, 1}) {
    EXPECT_FALSE(mine_.is_cut_off());
    world_.network().cut(rail, 0, 1, {});
    for (int i = 0; i < 100; ++i) world_.step();
  }
  EXPECT_TRUE(mine_.is_cut_off());
  EXPECT_TRUE(theirs_.is_cut_off());
  world_.network().heal(0, 0, 1);
  EXPECT_TRUE(world_.run_until([this] { return !mine_.is_cut_off(); }, 10 * kSecond));
}

TEST_F(Leaving, DoesNotWaitForLinksToOneThatHasLeft) {
  theirs_.say_goodbye();
  for (int i = 0; i < 100; ++i) world_.step();
  for (const int rail : {0, 1}) world_.network().cut(rail, 0, 1, {});
  for (int i = 0; i < 100; ++i) world_.step();
  EXPECT_FALSE(mine_.connected(1));
  EXPECT_FALSE(mine_.is_cut_off());
}

}  // namespace
}  // namespace allrail::transport
