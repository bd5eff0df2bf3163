#include "transport/rail_pairs.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "transport/pair_probe.hpp"

namespace allrail::transport {

void PrintTo(const RailPair& pair, std::ostream* out) { *out << pair.lower << '-' << pair.higher; }

namespace {

using Ends = std::vector<RailEnd>;
using Pairs = std::vector<RailPair>;

RailEnd infiniband(std::uint8_t last_of_prefix = 0) {
  RailEnd end;
  end.network = Network::InfiniBand;
  end.subnet = make_subnet({0xFE, 0x80, 0, 0, 0, 0, 0, last_of_prefix}, 64);
  end.rate_mbit = 100'000;
  return end;
}

RailEnd ipv4(const std::array<std::uint8_t, 4>& address, std::uint32_t rate_mbit = 100'000,
             Network network = Network::RoceV2Ipv4) {
  RailEnd end;
  NetworkAddress mapped{};
  mapped[10] = mapped[11] = 0xFF;
  std::ranges::copy(address, mapped.begin() + 12);
  end.network = network;
  end.subnet = make_subnet(mapped, kMappedIpv4Bits + 24);
  end.rate_mbit = rate_mbit;
  return end;
}

/// What a connector takes: in the order of the list, an end at most once, only pairs that answer.
Pairs probe(const Pairs& pairs, const std::function<bool(const RailPair&)>& answers) {
  Pairs taken;
  for (const RailPair& pair : pairs) {
    const bool is_free = std::ranges::none_of(taken, [&](const RailPair& one) {
      return one.lower == pair.lower || one.higher == pair.higher;
    });
    if (is_free && answers(pair)) taken.push_back(pair);
  }
  return taken;
}
bool always(const RailPair&) { return true; }

TEST(PairRails, GoesBySubnetWhereverTheyAre) {
  const Ends lower = {ipv4({10, 0, 0, 1}), ipv4({10, 0, 1, 1}), ipv4({10, 0, 2, 1})};
  const Ends higher = {ipv4({10, 0, 2, 2}), ipv4({10, 0, 0, 2}), ipv4({10, 0, 1, 2})};
  const Pairs pairs = pair_rails({lower, higher});
  EXPECT_EQ(probe(pairs, always), (Pairs{{0, 1}, {1, 2}, {2, 0}}));
  EXPECT_EQ(pairs.size(), 9U) << "what is likely may be wrong";
}

TEST(PairRails, GoesByOrderBetweenRoutedSubnets) {
  const Ends lower = {ipv4({10, 1, 0, 1}), ipv4({10, 1, 1, 1})};
  const Ends higher = {ipv4({10, 2, 0, 1}), ipv4({10, 2, 1, 1})};
  EXPECT_EQ(pair_rails({lower, higher}), (Pairs{{0, 0}, {1, 1}, {0, 1}, {1, 0}}));
}

TEST(PairRails, FindsTwoFabricsWithTheSamePrefix) {
  const Ends lower = {infiniband(), infiniband()};
  const Ends higher = {infiniband(), infiniband()};
  const Pairs pairs = pair_rails({lower, higher});
  EXPECT_EQ(pairs, (Pairs{{0, 0}, {1, 1}, {0, 1}, {1, 0}}));
  // Cabled straight, and cabled crosswise: the probes tell.
  const auto straight = [](const RailPair& pair) { return pair.lower == pair.higher; };
  const auto crossed = [](const RailPair& pair) { return pair.lower != pair.higher; };
  EXPECT_EQ(probe(pairs, straight), (Pairs{{0, 0}, {1, 1}}));
  EXPECT_EQ(probe(pairs, crossed), (Pairs{{0, 1}, {1, 0}}));
}

TEST(PairRails, JoinsTheRestByOrderWhereOneSubnetIsCommon) {
  // One rail of each is on a common network, the others are routed.
  const Ends lower = {ipv4({10, 0, 0, 1}), ipv4({10, 1, 0, 1})};
  const Ends higher = {ipv4({10, 2, 0, 1}), ipv4({10, 0, 0, 2})};
  const Pairs pairs = pair_rails({lower, higher});
  EXPECT_EQ(pairs.front(), (RailPair{0, 1}));
  EXPECT_EQ(pairs[1], (RailPair{1, 0}));
  EXPECT_EQ(probe(pairs, always).size(), 2U);
}

TEST(PairRails, TakesDifferentNumbersOfRails) {
  const Ends one = {ipv4({10, 0, 1, 1})};
  const Ends three = {ipv4({10, 0, 0, 2}), ipv4({10, 0, 1, 2}), ipv4({10, 0, 1, 3})};
  EXPECT_EQ(pair_rails({one, three}), (Pairs{{0, 1}, {0, 2}, {0, 0}}));
  EXPECT_EQ(pair_rails({three, one}), (Pairs{{1, 0}, {2, 0}, {0, 0}}));
  EXPECT_EQ(pair_rails({one, {}}), Pairs());
  EXPECT_EQ(pair_rails({{}, {}}), Pairs());
}

TEST(PairRails, LetsEqualRatesMeet) {
  const Ends lower = {ipv4({10, 0, 0, 1}, 25'000), ipv4({10, 0, 0, 2}, 100'000)};
  const Ends higher = {ipv4({10, 0, 0, 3}, 100'000), ipv4({10, 0, 0, 4}, 25'000)};
  EXPECT_EQ(probe(pair_rails({lower, higher}), always), (Pairs{{1, 0}, {0, 1}}));
}

TEST(PairRails, JoinsOnlyRailsOfOneNetwork) {
  const auto of = [](Network network) { return ipv4({10, 0, 0, 1}, 100'000, network); };
  const Ends lower = {infiniband(), of(Network::RoceV2Ipv4)};
  const Ends higher = {of(Network::RoceV2Ipv4), infiniband(), of(Network::RoceV1),
                       of(Network::TcpIpv4)};
  EXPECT_EQ(pair_rails({lower, higher}), (Pairs{{0, 1}, {1, 0}}));
  EXPECT_EQ(pair_rails({{lower.data(), 1}, {higher.data(), 1}}), Pairs());
}

TEST(PairRails, CountsPlacesWithinOneNetwork) {
  const Ends lower = {ipv4({10, 0, 0, 1}, 100'000, Network::RoceV1), ipv4({10, 0, 0, 1})};
  const Ends higher = {ipv4({10, 0, 0, 2}), ipv4({10, 0, 0, 3})};
  EXPECT_EQ(pair_rails({lower, higher}), (Pairs{{1, 0}, {1, 1}}));
}

TEST(PairRails, NamesEveryPossiblePairOnceAndSubnetsFirst) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    const auto make_side = [&] {
      Ends ends(random() % 5);
      for (RailEnd& end : ends) {
        end = random() % 4 == 0 ? infiniband(random() % 2 != 0)
                                : ipv4({10, 0, static_cast<std::uint8_t>(random() % 3), 1},
                                       static_cast<std::uint32_t>(random() % 2 + 1));
      }
      return ends;
    };
    const Ends lower = make_side();
    const Ends higher = make_side();
    const Pairs pairs = pair_rails({lower, higher});
    std::size_t possible = 0;
    for (const RailEnd& one : lower) {
      possible +=
          static_cast<std::size_t>(std::ranges::count(higher, one.network, &RailEnd::network));
    }
    ASSERT_EQ(pairs.size(), possible);
    bool in_subnet = true;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      ASSERT_EQ(std::ranges::count(pairs, pairs[i]), 1);
      const RailEnd& one = lower[static_cast<std::size_t>(pairs[i].lower)];
      const RailEnd& other = higher[static_cast<std::size_t>(pairs[i].higher)];
      ASSERT_EQ(one.network, other.network);
      const bool same = same_subnet(one.subnet, other.subnet);
      ASSERT_TRUE(in_subnet || !same) << "a pair in one subnet after one that is not";
      in_subnet = same;
    }
    // Every rail that can have a partner gets one, while both sides have some left.
    std::map<Network, std::size_t> most;
    for (const Network network : {Network::InfiniBand, Network::RoceV2Ipv4}) {
      most[network] = static_cast<std::size_t>(
          std::min(std::ranges::count(lower, network, &RailEnd::network),
                   std::ranges::count(higher, network, &RailEnd::network)));
    }
    ASSERT_EQ(probe(pairs, always).size(), most[Network::InfiniBand] + most[Network::RoceV2Ipv4]);
  }
}

TEST(PairRails, GivesEveryRailAtMostOnePartnerAtOnce) {
  // What is tried at first is what every pair that answers would make.
  const Ends lower = {ipv4({10, 0, 0, 1}), ipv4({10, 0, 1, 1}), ipv4({10, 0, 2, 1})};
  const Ends higher = {ipv4({10, 0, 2, 2}), ipv4({10, 0, 1, 2})};
  const Pairs pairs = pair_rails({lower, higher});
  EXPECT_EQ(PairProbe(pairs).assigned(), (Pairs{{1, 1}, {2, 0}}));
  EXPECT_EQ(probe(pairs, always), PairProbe(pairs).assigned());
}

TEST(WantedPairs, OverrideTheOrder) {
  Ends two = {ipv4({10, 0, 0, 1}), ipv4({10, 0, 1, 1})};
  two[0].name = "eth0";
  two[1].name = "mlx5_0:1";
  const Ends one = {two[1]};
  const auto paired = [](const Ends& lower, const Ends& higher,
                         const std::vector<WantedPair>& wanted) {
    return pair_rails({lower, higher}, wanted);
  };
  EXPECT_EQ(paired(two, two, {{"0", "1"}}), (Pairs{{0, 1}, {1, 0}})) << "either way round";
  EXPECT_EQ(paired(two, two, {{"eth0", "mlx5_0"}}), (Pairs{{0, 1}, {1, 0}})) << "port 1 is meant";
  EXPECT_EQ(paired(two, two, {{"1", "1"}}), (Pairs{{1, 1}})) << "and no other";
  EXPECT_EQ(paired(two, two, {{"1", "1"}, {"0", "1"}, {"mlx5_0:1", "1"}}),
            (Pairs{{1, 1}, {0, 1}, {1, 0}}))
      << "in their order, each once";
  EXPECT_EQ(paired(two, one, {{"1", "1"}, {"1", "0"}}), (Pairs{{1, 0}}))
      << "hosts with fewer rails have fewer pairs";
  EXPECT_EQ(paired(two, {infiniband()}, {{"0", "0"}}), Pairs()) << "of another network";
}

}  // namespace
}  // namespace allrail::transport
