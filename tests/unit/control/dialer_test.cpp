#include "transport/control/dialer.hpp"

#include <gtest/gtest.h>

namespace allrail::transport::control {

void PrintTo(const DialAttempt& one, std::ostream* out) { *out << one.from << "->" << one.to; }

namespace {

using Attempts = std::vector<DialAttempt>;

Endpoint address(const char* text) { return *parse_address(text); }

RailPlace rail(const char* text, int prefix_bits) {
  RailPlace place;
  place.address = address(text);
  place.prefix_bits = prefix_bits;
  return place;
}

TEST(DialOrder, GoesFromTheRailInTheSameSubnet) {
  const std::vector<RailPlace> from = {rail("10.0.0.1", 24), rail("10.0.1.1", 24)};
  EXPECT_EQ(dial_order(from, {address("10.0.1.2"), address("10.0.0.2")}),
            (Attempts{{1, 0}, {0, 1}}))
      << "whatever the order of the hosts";
  EXPECT_EQ(dial_order(from, {address("10.0.1.2")}), (Attempts{{1, 0}}));
}

TEST(DialOrder, UsesAllRailsOfOneSubnet) {
  const std::vector<RailPlace> from = {rail("127.0.0.1", 8), rail("127.0.0.2", 8)};
  EXPECT_EQ(dial_order(from, {address("127.0.0.3"), address("127.0.0.4"), address("127.0.0.5")}),
            (Attempts{{0, 0}, {1, 1}, {0, 2}}));
}

TEST(DialOrder, TriesEveryRailWhereSubnetsSayNothing) {
  const std::vector<RailPlace> routed = {rail("10.1.0.1", 24), rail("10.1.1.1", 24)};
  EXPECT_EQ(dial_order(routed, {address("10.2.0.1"), address("10.2.1.1")}),
            (Attempts{{0, 0}, {1, 1}, {1, 0}, {0, 1}}))
      << "equal places first";
  EXPECT_EQ(dial_order({rail("10.1.0.1", 0)}, {address("10.1.0.2")}), (Attempts{{0, 0}}))
      << "an unknown prefix is in no subnet";
  EXPECT_EQ(dial_order({rail("10.1.0.1", 24)}, {}), Attempts());
}

}  // namespace
}  // namespace allrail::transport::control
