// The choice of leaders: on machines of four sockets with two HCAs, as lstopo would describe them,
// and by properties that hold on any node.
#include "lib/topology/leaders.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "include/allrail/error.hpp"
#include "lib/topology/topology.hpp"

namespace allrail::topology {
namespace {

const std::vector<std::string> kTwoHcas{"mlx5_0", "mlx5_1"};

/// Four sockets of four cores; cpu i is on socket i mod 4.
Machine machine(const std::string& name) {
  const char* folder = std::getenv("ALLRAIL_TEST_MACHINES");
  if (folder == nullptr) throw std::runtime_error("ALLRAIL_TEST_MACHINES must name a folder");
  return Machine::read(std::string(folder) + "/" + name + ".xml");
}

/// Ranks bound to these cpus, in this order.
std::vector<RankPlace> ranks_on(const Machine& machine, const std::vector<std::string>& cpus,
                                const std::vector<std::string>& rails = kTwoHcas) {
  std::vector<RankPlace> places;
  for (const std::string& one : cpus) places.push_back(machine.place_of(one, rails));
  return places;
}

/// Four ranks on each socket in turn, as `--map-by core` has them: ranks 0 to 3 on socket 0.
std::vector<RankPlace> full(const std::string& name) {
  const Machine here = machine(name);
  return ranks_on(here, here.one_core_each(16));
}

using Ints = std::vector<int>;

TEST(Places, AreTheSocketAndTheNearestRails) {
  const Machine apart = machine("four_sockets_apart");
  EXPECT_EQ(apart.domains(), 4);
  EXPECT_EQ(apart.place_of("0", kTwoHcas), (RankPlace{0, 0, 0b01}));
  EXPECT_EQ(apart.place_of("4,8", kTwoHcas), (RankPlace{0, 0, 0b01}));
  EXPECT_EQ(apart.place_of("2", kTwoHcas), (RankPlace{2, 0, 0b10}));
  EXPECT_EQ(apart.place_of("3", kTwoHcas), (RankPlace{3, 1, 0b11})) << "as far from both";
  EXPECT_EQ(apart.place_of("0-15", kTwoHcas).domain, kUnknownPlace);
  EXPECT_EQ(apart.place_of("0", {}), (RankPlace{0, kUnknownPlace, 0}));
}

TEST(Places, KnowRailsByInterfaceAndByPciAddress) {
  const Machine apart = machine("four_sockets_apart");
  const std::vector<std::string> interfaces{"eth0", "eth1"};
  EXPECT_EQ(apart.place_of("2", interfaces), (RankPlace{2, 0, 0b10}));
  const std::vector<std::string> addresses{"0000:05:00.0", "85:00.0"};
  EXPECT_EQ(apart.place_of("2", addresses), (RankPlace{2, 0, 0b10}));
  const std::vector<std::string> one_is_unknown{"nowhere", "mlx5_1"};
  EXPECT_EQ(apart.place_of("2", one_is_unknown), (RankPlace{2, 0, 0b10}));
  EXPECT_EQ(apart.place_of("0", one_is_unknown), (RankPlace{0, 1, 0b10}));
}

TEST(Places, OfRailsThatHangFromTheRootAreUnknown) {
  const Machine unknown = machine("four_sockets_unknown");
  EXPECT_EQ(unknown.place_of("2", kTwoHcas), (RankPlace{2, kUnknownPlace, 0}));
}

TEST(Places, AreReadOnlyFromMachinesThatAreThere) {
  EXPECT_THROW(Machine::read("/nonexistent.xml"), Error);
}

TEST(Places, RanksAreSpreadOverTheCoresInTheirOrder) {
  const Machine apart = machine("four_sockets_apart");
  EXPECT_EQ(apart.one_core_each(4), (std::vector<std::string>{"0", "1", "2", "3"}));
  EXPECT_EQ(apart.one_core_each(16)[1], "4") << "the second core of socket 0";
  EXPECT_EQ(apart.one_core_each(32)[3], "4") << "two ranks per core";
}

TEST(Leaders, OnePerSocketLeadsItsSocket) {
  const auto node = full("four_sockets_apart");
  EXPECT_EQ(natural_leaders(LeaderPolicy::Socket, node), 4);
  const NodeLeaders elected = elect_leaders(LeaderPolicy::Socket, node, 4);
  EXPECT_EQ(elected.leaders, (Ints{0, 4, 8, 12}));
  EXPECT_EQ(elected.lane_of, (Ints{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}));
}

TEST(Leaders, SocketsAreFoundWhateverTheOrderOfRanks) {
  // `--map-by socket`: rank i on socket i mod 4.
  const auto node =
      ranks_on(machine("four_sockets_apart"), {"0", "1", "2", "3", "4", "5", "6", "7"});
  const NodeLeaders elected = elect_leaders(LeaderPolicy::Socket, node, 4);
  EXPECT_EQ(elected.leaders, (Ints{0, 1, 2, 3}));
  EXPECT_EQ(elected.lane_of, (Ints{0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST(Leaders, FewerLanesThanSocketsHaveWholeSockets) {
  const NodeLeaders elected = elect_leaders(LeaderPolicy::Socket, full("four_sockets_apart"), 2);
  EXPECT_EQ(elected.leaders, (Ints{0, 8}));
  EXPECT_EQ(elected.lane_of, (Ints{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}));
}

TEST(Leaders, MoreLanesThanSocketsDivideThem) {
  const NodeLeaders elected = elect_leaders(LeaderPolicy::Socket, full("four_sockets_apart"), 8);
  EXPECT_EQ(elected.leaders, (Ints{0, 1, 4, 5, 8, 9, 12, 13}));
  EXPECT_EQ(elected.lane_of, (Ints{0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7}));
}

TEST(Leaders, NearOnesHaveARailEach) {
  const auto node = full("four_sockets_apart");
  EXPECT_EQ(natural_leaders(LeaderPolicy::Near, node), 2);
  const NodeLeaders elected = elect_leaders(LeaderPolicy::Near, node, 2);
  EXPECT_EQ(elected.leaders, (Ints{0, 8})) << "by mlx5_0 and by mlx5_1";
  EXPECT_EQ(elected.lane_of, (Ints{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}));
}

TEST(Leaders, NearOnesShareRailsAndStayNear) {
  const NodeLeaders elected = elect_leaders(LeaderPolicy::Near, full("four_sockets_apart"), 4);
  EXPECT_EQ(elected.leaders, (Ints{0, 8, 1, 9})) << "two near each rail, none on other sockets";
  EXPECT_EQ(elected.lane_of, (Ints{0, 2, 0, 2, 0, 0, 1, 1, 1, 3, 1, 3, 2, 2, 3, 3}));
}

TEST(Leaders, NearOnesAllRunWhereBothRailsAre) {
  const auto node = full("four_sockets_together");
  EXPECT_EQ(natural_leaders(LeaderPolicy::Near, node), 2);
  const NodeLeaders elected = elect_leaders(LeaderPolicy::Near, node, 2);
  EXPECT_EQ(elected.leaders, (Ints{4, 5}));
  for (const int lane : {0, 1}) EXPECT_EQ(std::ranges::count(elected.lane_of, lane), 8);
}

TEST(Leaders, OneLeaderIsNearTooThoughTheFirstRankIsNot) {
  const NodeLeaders elected = elect_leaders(LeaderPolicy::Near, full("four_sockets_together"), 1);
  EXPECT_EQ(elected.leaders, (Ints{4}));
  EXPECT_EQ(elected.lane_of, Ints(16, 0));
}

TEST(Leaders, OnlyTheDistanceOfWhoReceivesCounts) {
  // One rank beside the rail, and all that it leads far away: it leads all the same.
  const auto node = ranks_on(machine("four_sockets_together"), {"0", "4", "8", "12", "1"});
  EXPECT_EQ(elect_leaders(LeaderPolicy::Near, node, 1).leaders, (Ints{4}));
}

TEST(Leaders, NearMeansSocketsWhereNoRailHasAPlace) {
  const auto node = full("four_sockets_unknown");
  EXPECT_EQ(natural_leaders(LeaderPolicy::Near, node), 4);
  const NodeLeaders near = elect_leaders(LeaderPolicy::Near, node, 4);
  const NodeLeaders socket = elect_leaders(LeaderPolicy::Socket, node, 4);
  EXPECT_EQ(near.leaders, socket.leaders);
  EXPECT_EQ(near.lane_of, socket.lane_of);
}

TEST(Leaders, PackedOnesAreOnOneSocket) {
  const auto node = full("four_sockets_apart");
  EXPECT_EQ(natural_leaders(LeaderPolicy::Packed, node), 4);
  const NodeLeaders elected = elect_leaders(LeaderPolicy::Packed, node, 4);
  EXPECT_EQ(elected.leaders, (Ints{0, 1, 2, 3}));
  for (int lane = 0; lane < 4; ++lane) EXPECT_EQ(std::ranges::count(elected.lane_of, lane), 4);
}

TEST(Leaders, PackedOnesStayThereAndLeadAgainWhereTheSocketIsFull) {
  const NodeLeaders elected = elect_leaders(LeaderPolicy::Packed, full("four_sockets_apart"), 6);
  EXPECT_EQ(elected.leaders, (Ints{0, 1, 2, 3, 0, 1}));
  // The fullest socket is taken, not the first.
  const auto uneven = ranks_on(machine("four_sockets_apart"), {"0", "2", "6", "1"});
  EXPECT_EQ(elect_leaders(LeaderPolicy::Packed, uneven, 2).leaders, (Ints{1, 2}));
}

TEST(Leaders, AFewRanksPlayAllLeaders) {
  const Machine apart = machine("four_sockets_apart");
  const auto two = ranks_on(apart, {"1", "2"});  // far from mlx5_0, by mlx5_1
  const NodeLeaders near = elect_leaders(LeaderPolicy::Near, two, 4);
  EXPECT_EQ(near.leaders, (Ints{1, 0, 1, 0}));
  EXPECT_EQ(near.lane_of, (Ints{1, 0}));
  const NodeLeaders socket = elect_leaders(LeaderPolicy::Socket, two, 4);
  EXPECT_EQ(socket.leaders, (Ints{0, 1, 1, 0})) << "each as often as the other";
  const auto one = ranks_on(apart, {"3"});
  EXPECT_EQ(elect_leaders(LeaderPolicy::Near, one, 4).leaders, (Ints{0, 0, 0, 0}));
  EXPECT_EQ(natural_leaders(LeaderPolicy::Socket, one), 1);
}

TEST(Leaders, FollowTheOrderOfRanksWhereNothingIsKnown) {
  for (const auto policy : {LeaderPolicy::Near, LeaderPolicy::Socket, LeaderPolicy::Packed}) {
    const std::vector<RankPlace> node(5);
    EXPECT_EQ(natural_leaders(policy, node), 1);
    const NodeLeaders elected = elect_leaders(policy, node, 2);
    EXPECT_EQ(elected.leaders, (Ints{0, 2}));
    EXPECT_EQ(elected.lane_of, (Ints{0, 0, 1, 1, 1}));
  }
}

TEST(Leaders, WhoMayRunAnywhereGoesWhereThereAreLeast) {
  auto node = ranks_on(machine("four_sockets_apart"), {"0", "4", "8", "1"});
  node.resize(6);
  const NodeLeaders elected = elect_leaders(LeaderPolicy::Socket, node, 2);
  EXPECT_EQ(elected.leaders, (Ints{0, 3}));
  EXPECT_EQ(elected.lane_of, (Ints{0, 0, 0, 1, 1, 1}));
}

TEST(Leaders, PoliciesHaveNames) {
  for (const char* name : {"near", "socket", "packed"}) {
    const auto policy = parse_leader_policy(name);
    ASSERT_TRUE(policy);
    EXPECT_STREQ(leader_policy_name(*policy), name);
  }
  EXPECT_FALSE(parse_leader_policy("far"));
  EXPECT_FALSE(parse_leader_policy(""));
}

class AnyNode : public ::testing::TestWithParam<LeaderPolicy> {};
INSTANTIATE_TEST_SUITE_P(Policies, AnyNode,
                         ::testing::Values(LeaderPolicy::Near, LeaderPolicy::Socket,
                                           LeaderPolicy::Packed),
                         [](const auto& tested) {
                           return std::string(leader_policy_name(tested.param));
                         });

TEST_P(AnyNode, HasEveryRankInOneGroupAndALeaderForEveryLane) {
  for (unsigned seed = 0; seed < 4000; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](unsigned bound) { return static_cast<unsigned>(random() % bound); };
    std::vector<RankPlace> node(1 + below(24));
    const unsigned domains = 1 + below(5);
    for (RankPlace& place : node) {
      if (below(8) > 0) place.domain = static_cast<std::uint8_t>(below(domains));
      if (below(4) == 0) continue;
      place.rail_levels = static_cast<std::uint8_t>(below(4));
      place.near_rails = static_cast<std::uint8_t>(1 + below(15));
    }
    const int lanes = 1 + static_cast<int>(below(30));
    const NodeLeaders elected = elect_leaders(GetParam(), node, lanes, Reasons::Yes);
    const std::string what = "seed " + std::to_string(seed);
    ASSERT_EQ(elected.leaders.size(), static_cast<std::size_t>(lanes)) << what;
    ASSERT_EQ(elected.why.size(), static_cast<std::size_t>(lanes)) << what;
    ASSERT_EQ(elected.lane_of.size(), node.size()) << what;
    for (const int lane : elected.lane_of) {
      ASSERT_GE(lane, 0) << what;
      ASSERT_LT(lane, lanes) << what;
    }
    for (const int leader : elected.leaders) {
      ASSERT_GE(leader, 0) << what;
      ASSERT_LT(leader, static_cast<int>(node.size())) << what;
      const int own = elected.lane_of[static_cast<std::size_t>(leader)];
      ASSERT_EQ(elected.leaders[static_cast<std::size_t>(own)], leader)
          << what << ": leader " << leader << " is in a group that another leads";
    }
    const std::set<int> leading(elected.leaders.begin(), elected.leaders.end());
    if (GetParam() != LeaderPolicy::Packed) {
      ASSERT_EQ(leading.size(), std::min<std::size_t>(node.size(), static_cast<std::size_t>(lanes)))
          << what << ": somebody leads twice while others do not lead";
    }
    const int natural = natural_leaders(GetParam(), node);
    ASSERT_GE(natural, 1) << what;
    ASSERT_LE(natural, static_cast<int>(node.size())) << what;
  }
}

}  // namespace
}  // namespace allrail::topology
