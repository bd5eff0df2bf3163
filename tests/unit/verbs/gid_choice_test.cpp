#include "transport/verbs/gid_choice.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/verbs/made_up_ports.hpp"

namespace allrail::transport {
namespace {

using test::gid_bytes;
using test::make_gid;

TEST(GidScope, KnowsWhatAnAddressIsGoodFor) {
  EXPECT_EQ(scope_of(gid_bytes("10.9.0.1")), GidScope::Ipv4);
  EXPECT_EQ(scope_of(gid_bytes("223.255.255.1")), GidScope::Ipv4);
  EXPECT_EQ(scope_of(gid_bytes("169.254.3.4")), GidScope::LinkLocal);
  EXPECT_EQ(scope_of(gid_bytes("169.253.3.4")), GidScope::Ipv4);
  EXPECT_EQ(scope_of(gid_bytes("127.0.0.1")), GidScope::Unusable);
  EXPECT_EQ(scope_of(gid_bytes("0.0.0.0")), GidScope::Unusable);
  EXPECT_EQ(scope_of(gid_bytes("224.0.0.1")), GidScope::Unusable);
  EXPECT_EQ(scope_of(gid_bytes("2001:db8::1")), GidScope::GlobalIpv6);
  EXPECT_EQ(scope_of(gid_bytes("fc00::1")), GidScope::UniqueLocalIpv6);
  EXPECT_EQ(scope_of(gid_bytes("fdff::1")), GidScope::UniqueLocalIpv6);
  EXPECT_EQ(scope_of(gid_bytes("fe80::1")), GidScope::LinkLocal);
  EXPECT_EQ(scope_of(gid_bytes("febf::1")), GidScope::LinkLocal);
  EXPECT_EQ(scope_of(gid_bytes("ff02::1")), GidScope::Unusable);
  EXPECT_EQ(scope_of(gid_bytes("::")), GidScope::Unusable);
  EXPECT_EQ(scope_of(gid_bytes("::1")), GidScope::Unusable);
}

/// Best first. The indices say nothing about the order.
std::vector<VerbsGid> in_order_of_preference() {
  return {
      make_gid(9, "10.0.0.1", GidType::RoceV2),    make_gid(8, "2001:db8::1", GidType::RoceV2),
      make_gid(7, "fd00::1", GidType::RoceV2),     make_gid(6, "10.0.0.1", GidType::RoceV1),
      make_gid(5, "2001:db8::1", GidType::RoceV1), make_gid(4, "fd00::1", GidType::RoceV1),
      make_gid(3, "fe80::1", GidType::RoceV2),     make_gid(2, "fe80::1", GidType::RoceV1),
  };
}

TEST(BestGid, FollowsThePreferenceForEverySetOfEntries) {
  const std::vector<VerbsGid> all = in_order_of_preference();
  for (unsigned present = 1; present < (1U << all.size()); ++present) {
    VerbsPort port;
    port.link_layer = LinkLayer::Ethernet;
    int expected = -1;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if ((present >> i & 1) == 0) continue;
      if (expected < 0) expected = all[i].index;
      port.gids.insert(port.gids.begin(), all[i]);
    }
    const VerbsGid* best = best_gid(port);
    ASSERT_NE(best, nullptr);
    ASSERT_EQ(best->index, expected) << "of " << gids_text(port);
  }
}

TEST(BestGid, TakesTheFirstOfEqualOnes) {
  VerbsPort port;
  port.link_layer = LinkLayer::Ethernet;
  port.gids = {make_gid(5, "10.0.1.1"), make_gid(3, "10.0.0.1"), make_gid(7, "10.0.2.1")};
  ASSERT_NE(best_gid(port), nullptr);
  EXPECT_EQ(best_gid(port)->index, 3);
}

TEST(BestGid, IsNoneWhereNoneCanBeUsed) {
  VerbsPort port;
  port.link_layer = LinkLayer::Ethernet;
  EXPECT_EQ(best_gid(port), nullptr);
  port.gids = {make_gid(0, "::"), make_gid(1, "ff02::1"), make_gid(2, "127.0.0.1")};
  EXPECT_EQ(best_gid(port), nullptr);
}

TEST(BestGid, IsTheFirstOnInfiniBand) {
  VerbsPort port = test::infiniband_port("mlx5_0");
  port.gids.insert(port.gids.begin(), make_gid(1, "2001:db8::1", GidType::InfiniBand));
  ASSERT_NE(best_gid(port), nullptr);
  EXPECT_EQ(best_gid(port)->index, 0);
}

TEST(IpAddress, IsOfAnInterfaceThatCanBeBound) {
  const VerbsPort roce = test::roce_port("mlx5_0");
  const auto text = [&](const char* address) {
    const VerbsGid gid = make_gid(3, address);
    return ip_address(roce, &gid);
  };
  EXPECT_EQ(text("10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(text("169.254.1.1"), "169.254.1.1");
  EXPECT_EQ(text("fd00::1"), "fd00::1");
  EXPECT_EQ(text("2001:db8::1"), "2001:db8::1");
  EXPECT_EQ(text("fe80::1"), "") << "binding it would need a scope";
  EXPECT_EQ(text("ff02::1"), "");
  EXPECT_EQ(ip_address(roce, nullptr), "");
  const VerbsGid global = make_gid(0, "2001:db8::1", GidType::InfiniBand);
  EXPECT_EQ(ip_address(test::infiniband_port("mlx5_0"), &global), "")
      << "a GID that looks like one";
}

TEST(FindGid, GoesByIndexNotByPlace) {
  VerbsPort port;
  port.gids = {make_gid(0, "fe80::1"), make_gid(3, "10.0.0.1")};
  EXPECT_EQ(find_gid(port, 1), nullptr);
  ASSERT_NE(find_gid(port, 3), nullptr);
  EXPECT_EQ(gid_text(*find_gid(port, 3)), "3 = 10.0.0.1 (RoCE v2)");
  EXPECT_EQ(gids_text(port), "0 = fe80::1 (RoCE v2), 3 = 10.0.0.1 (RoCE v2)");
  EXPECT_EQ(gids_text(VerbsPort()), "none");
}

}  // namespace
}  // namespace allrail::transport
