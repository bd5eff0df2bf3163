// Done counts that are told while nothing goes back: over which rail, and what is acknowledged with
// them. A sender may use its slots again only when both have come.
#include <array>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/coll/counting_rail.hpp"
#include "transport/fabric.hpp"
#include "transport/fake/fake_network.hpp"

namespace allrail::coll {
namespace {

constexpr std::size_t kBytes = 100;

class ToldCounts : public ::testing::Test {
 protected:
  struct Side {
    std::array<testing::RailUse, 2> use;  // by rail
    std::vector<std::byte> memory = std::vector<std::byte>(kBytes);
    std::unique_ptr<transport::Fabric> fabric;
  };

  void SetUp() override {
    for (int rank = 0; rank < 2; ++rank) {
      Side& side = at(rank);
      transport::FabricOptions options;
      options.now_ns = [this] { return network_.now_ns(); };
      std::vector<std::unique_ptr<transport::Rail>> rails;
      for (int rail = 0; rail < 2; ++rail) {
        rails.push_back(std::make_unique<testing::CountingRail>(
            network_.make_rail(rank, rail), side.use[static_cast<std::size_t>(rail)]));
      }
      side.fabric = std::make_unique<transport::Fabric>(rank, 2, std::move(rails), options);
      side.fabric->set_primary_window(side.memory);
    }
    for (int rank = 0; rank < 2; ++rank) {
      transport::PeerRails peer;
      for (int rail = 0; rail < 2; ++rail) {
        peer.rails.push_back({"fake", transport::FakeNetwork::address_of(1 - rank, rail)});
        peer.pairs.push_back({rail, rail});
      }
      at(rank).fabric->connect(1 - rank, peer);
    }
    let_time_pass();
  }

  void let_time_pass(int ticks = 200) {
    for (int i = 0; i < ticks; ++i) {
      for (Side& side : sides_) side.fabric->progress();
      network_.advance(10'000);
    }
  }

  /// One put, mostly of rank 0, which the other rank consumes.
  void put_over(int rail, int from = 0, int ticks = 200) {
    transport::Put put;
    put.peer = 1 - from;
    put.from = at(from).memory.data();
    put.bytes = kBytes;
    put.only_rail = rail;
    at(from).fabric->put(put);
    const std::uint64_t number = at(1 - from).fabric->expect(from, kBytes);
    let_time_pass(ticks);
    ASSERT_TRUE(at(1 - from).fabric->arrived(from, number));
    at(1 - from).fabric->consume(from, number);
  }

  /// What rank 1 does with its rails to tell rank 0 a count.
  std::array<testing::RailUse, 2> tell(std::uint64_t done) {
    for (testing::RailUse& use : at(1).use) use.messages = use.flushes = use.unanswered = 0;
    at(1).fabric->tell_done(0, done);
    at(1).fabric->send_told();
    const std::array<testing::RailUse, 2> used = at(1).use;
    let_time_pass();
    EXPECT_EQ(at(0).fabric->told_done(1), done);
    return used;
  }

  Side& at(int rank) { return sides_[static_cast<std::size_t>(rank)]; }

  transport::FakeNetwork network_{1, 2, std::vector<transport::FakeRailOptions>(2)};
  std::array<Side, 2> sides_;
};

TEST_F(ToldCounts, GoAtOnceOverTheRailThatBroughtTheLastChunk) {
  for (const int rail : {1, 0, 1}) {
    put_over(rail);
    const auto used = tell(at(0).fabric->told_done(1) + 1);
    const auto same = static_cast<std::size_t>(rail);
    EXPECT_EQ(used[same].messages, 1);
    EXPECT_EQ(used[1 - same].messages, 0);
    EXPECT_EQ(used[1 - same].unanswered, 0) << "nothing came over it since the last one";
  }
}

TEST_F(ToldCounts, AcknowledgeWhatCameOverOtherRails) {
  put_over(1);
  put_over(0);
  const auto used = tell(1);
  EXPECT_EQ(used[0].messages, 1);
  EXPECT_EQ(used[1].messages, 0);
  EXPECT_EQ(used[1].unanswered, 1);
  EXPECT_EQ(used[1].flushes, 0) << "what goes back may do";
}

TEST_F(ToldCounts, TellWhatIsConsumedLessOftenWhereAsMuchGoesBack) {
  constexpr int kTicks = 20;  // so few that nobody pings meanwhile
  for (const bool both_ways : {false, true, false}) {
    let_time_pass(100'000);  // until all is confirmed
    for (testing::RailUse& use : at(1).use) use.messages = 0;
    for (int i = 0; i < 128; ++i) {
      if (both_ways) put_over(0, 1, kTicks);
      put_over(0, 0, kTicks);
    }
    at(1).fabric->progress();
    EXPECT_EQ(at(1).use[0].messages + at(1).use[1].messages, both_ways ? 2 : 4);
  }
}

}  // namespace
}  // namespace allrail::coll
