// What direct links are made of on the wire: addresses and offers are read back, and nothing else
// is believed.
#include "transport/verbs/offer.hpp"

#include <gtest/gtest.h>

#include "transport/verbs/rail_address.hpp"

namespace allrail::transport::verbs {
namespace {

class OfferTest : public testing::Test {
 protected:
  OfferTest() {
    offer_.hello = {3, 6, false, 0x7f0012345678, 0xabcdef01, 0x7f00deadbee8, 77};
    offer_.path.qp_number = 0xfffffe;
    offer_.path.first_packet = 0xffffff;
    offer_.path.lid = 0x1234;
    offer_.path.mtu_code = 5;
    offer_.path.is_ethernet = true;
    for (std::size_t i = 0; i < 16; ++i) offer_.path.gid[i] = static_cast<std::uint8_t>(i * 17);
  }
  HelloContext context(int to_rank = 5, int rail = 1) const { return {secret_, 42, to_rank, rail}; }
  /// Whether an offer with this path is believed, although its MAC is right.
  bool is_believed(const PathFacts& path) const {
    const OfferBytes bytes = encode({offer_.hello, path}, context(), {});
    return decode_offer(bytes, context(), {}).has_value();
  }

  JobSecret secret_ = JobSecret::random();
  Offer offer_;
};

TEST_F(OfferTest, ComesBackAsItWas) {
  const auto got = decode_offer(encode(offer_, context(), {}), context(), {});
  ASSERT_TRUE(got);
  EXPECT_EQ(*got, offer_);
}

TEST_F(OfferTest, IsOfOneJobRankAndRailOnly) {
  const OfferBytes bytes = encode(offer_, context(), {});
  EXPECT_FALSE(decode_offer(bytes, context(6), {})) << "another rank";
  EXPECT_FALSE(decode_offer(bytes, context(5, 0), {})) << "another rail";
  const JobSecret other = JobSecret::random();
  EXPECT_FALSE(decode_offer(bytes, {other, 42, 5, 1}, {})) << "another secret";
  EXPECT_FALSE(decode_offer(bytes, {secret_, 43, 5, 1}, {})) << "another job";
}

TEST_F(OfferTest, AnAnswerAnswersOneOffer) {
  const OfferBytes request = encode(offer_, context(), {});
  const OfferBytes answer = encode(offer_, context(3), request);
  EXPECT_TRUE(decode_offer(answer, context(3), request));
  EXPECT_FALSE(decode_offer(answer, context(3), {}));
  ++offer_.path.first_packet;
  offer_.path.first_packet &= 0xffffff;
  EXPECT_FALSE(decode_offer(answer, context(3), encode(offer_, context(), {})));
}

TEST_F(OfferTest, NoBitCanChange) {
  const OfferBytes bytes = encode(offer_, context(), {});
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    OfferBytes changed = bytes;
    changed[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    EXPECT_FALSE(decode_offer(changed, context(), {})) << bit;
  }
}

TEST_F(OfferTest, WhatCannotBeIsNotBelieved) {
  EXPECT_TRUE(is_believed(offer_.path));
  PathFacts path = offer_.path;
  path.qp_number = 0;
  EXPECT_FALSE(is_believed(path));
  path.qp_number = 1U << 24;
  EXPECT_FALSE(is_believed(path));
  path = offer_.path;
  path.first_packet = 1U << 24;
  EXPECT_FALSE(is_believed(path));
  path = offer_.path;
  path.mtu_code = 0;
  EXPECT_FALSE(is_believed(path));
  path.mtu_code = 6;
  EXPECT_FALSE(is_believed(path));
}

RailAddress full_address() {
  RailAddress address;
  address.rail = 7;
  address.mtu_code = 5;
  address.manager = parse_address("fd00::1");
  address.manager->port = 4711;
  for (const char* text : {"10.0.0.1", "10.0.0.2", "fd00::3", "127.0.0.1"}) {
    address.side_channel.push_back(*parse_address(text));
    address.side_channel.back().port = 65535;
  }
  return address;
}

TEST(RailAddress, ComesBackAsItWas) {
  RailAddress address = full_address();
  EXPECT_LE(encode(address).size(), 256U);
  EXPECT_EQ(decode_rail_address(encode(address)), address);
  address.manager.reset();
  EXPECT_EQ(decode_rail_address(encode(address)), address);
  address.side_channel.clear();
  EXPECT_EQ(decode_rail_address(encode(address)), address);
}

TEST(RailAddress, NothingElseIsOne) {
  const std::vector<std::byte> bytes = encode(full_address());
  EXPECT_FALSE(decode_rail_address({}));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode_rail_address(std::span(bytes).first(length))) << length;
  }
  for (const std::size_t at : {0U, 2U, 3U, 4U}) {
    std::vector<std::byte> changed = bytes;
    changed[at] = std::byte{6};
    EXPECT_FALSE(decode_rail_address(changed)) << at;
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{});
  EXPECT_FALSE(decode_rail_address(longer));
}

TEST(CommonWay, IsTheSameAtBothEnds) {
  RailAddress both = full_address();
  RailAddress manager = full_address();
  manager.side_channel.clear();
  RailAddress direct = full_address();
  direct.manager.reset();
  const auto way = [](const RailAddress& one, const RailAddress& other) {
    EXPECT_EQ(common_way(one, other), common_way(other, one));
    return common_way(one, other);
  };
  EXPECT_EQ(way(both, both), Way::Manager);
  EXPECT_EQ(way(both, manager), Way::Manager);
  EXPECT_EQ(way(both, direct), Way::Direct);
  EXPECT_EQ(way(direct, direct), Way::Direct);
  EXPECT_EQ(way(manager, direct), Way::None);
  RailAddress small = both;
  small.mtu_code = 3;
  EXPECT_EQ(way(both, small), Way::Direct) << "librdmacm would take one end's MTU for both";
  EXPECT_EQ(way(small, manager), Way::None);
  EXPECT_EQ(way(small, small), Way::Manager);
}

TEST(NextWay, IsTheOtherOneIfThereIsOne) {
  RailAddress both = full_address();
  RailAddress manager = full_address();
  manager.side_channel.clear();
  RailAddress small = full_address();
  small.mtu_code = 3;
  EXPECT_EQ(next_way(both, both, Way::Manager), Way::Direct);
  EXPECT_EQ(next_way(both, both, Way::Direct), Way::Manager);
  EXPECT_EQ(next_way(both, manager, Way::Manager), Way::Manager);
  EXPECT_EQ(next_way(both, small, Way::Direct), Way::Direct);
}

}  // namespace
}  // namespace allrail::transport::verbs
