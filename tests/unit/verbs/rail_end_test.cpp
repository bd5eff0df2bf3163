#include "transport/verbs/rail_end.hpp"

#include <gtest/gtest.h>

#include "tests/unit/verbs/made_up_ports.hpp"

namespace allrail::transport {
namespace {

using test::infiniband_port;
using test::roce_port;

RailEnd infiniband(std::uint64_t prefix = 0xFE80'0000'0000'0000) {
  VerbsPort port = infiniband_port("mlx5_0");
  port.subnet_prefix = prefix;
  return rail_end(port, 0);
}

RailEnd roce(const std::string& ipv4, int prefix_length = 24) {
  VerbsPort port = roce_port("mlx5_0", ipv4, prefix_length);
  return rail_end(port, 3);
}

TEST(RailEnd, KnowsNetworkAndSubnet) {
  EXPECT_TRUE(same_subnet(roce("10.0.0.1").subnet, roce("10.0.0.200").subnet));
  EXPECT_FALSE(same_subnet(roce("10.0.0.1").subnet, roce("10.0.1.1").subnet));
  EXPECT_TRUE(same_subnet(roce("10.0.0.1", 16).subnet, roce("10.0.1.1", 16).subnet));
  EXPECT_TRUE(same_subnet(roce("10.0.0.1", 23).subnet, roce("10.0.1.1", 23).subnet));
  EXPECT_FALSE(same_subnet(roce("10.0.0.1", 16).subnet, roce("10.0.1.1", 24).subnet));
  EXPECT_TRUE(same_subnet(infiniband().subnet, infiniband().subnet));
  EXPECT_FALSE(same_subnet(infiniband().subnet, infiniband(0xFE80'0000'0000'0001).subnet));

  const VerbsPort port = roce_port("mlx5_0");
  EXPECT_EQ(rail_end(port, 3).network, Network::RoceV2Ipv4);
  EXPECT_EQ(rail_end(port, 2).network, Network::RoceV1);
  EXPECT_EQ(rail_end(port, 1).network, Network::RoceV2Ipv6);
  EXPECT_TRUE(same_subnet(rail_end(port, 1).subnet, rail_end(port, 0).subnet)) << "link-local";
  EXPECT_EQ(infiniband().network, Network::InfiniBand);
  EXPECT_EQ(rail_end(infiniband_port("mlx5_0"), -1).network, Network::InfiniBand);
  EXPECT_EQ(infiniband().rate_mbit, infiniband_port("mlx5_0").rate_mbit);
  EXPECT_EQ(infiniband().name, "mlx5_0:1");
}

TEST(RailEnd, WithAnUnknownPrefixIsInNoSubnet) {
  VerbsPort port = roce_port("mlx5_0");
  port.gids[3].prefix_bits = 0;
  EXPECT_FALSE(same_subnet(rail_end(port, 3).subnet, rail_end(port, 3).subnet));
}

}  // namespace
}  // namespace allrail::transport
