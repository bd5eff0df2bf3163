#include "transport/control/dialer.hpp"

#include <optional>

#include <gtest/gtest.h>

#include "lib/base/clock.hpp"

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

/// Whether the dialer takes it that nobody listens on the peer's host any more.
bool is_refused(const std::vector<RailPlace>& from, const std::vector<Endpoint>& to) {
  EventLoop loop;
  DialPlan plan;
  plan.from = from;
  plan.to = to;
  std::optional<bool> refused;
  Dialer dialer(loop, plan,
                {[](base::UniqueFd) { ADD_FAILURE() << "somebody listens"; }, [] {},
                 [&refused](bool by_kernel, const std::string&) { refused = by_kernel; }});
  for (int looks = 0; looks < 1000 && !refused; ++looks) {
    dialer.tick(base::now_ns());
    loop.run_once(10);
  }
  EXPECT_TRUE(refused.has_value());
  return refused.value_or(false);
}

Endpoint nobody_at(const char* text) {
  Endpoint place = address(text);
  place.port = 1;
  return place;
}

TEST(Dialer, ItsOwnHostsRefusalTellsNothingOfAnother) {
  const std::vector<RailPlace> from = {rail("127.0.0.1", 32), rail("127.0.0.2", 32)};
  EXPECT_TRUE(is_refused(from, {nobody_at("127.0.0.1"), nobody_at("127.0.0.2")})) << "one host";
  EXPECT_TRUE(is_refused(from, {nobody_at("127.0.0.3")}));
  EXPECT_TRUE(is_refused(from, {nobody_at("127.0.0.3"), nobody_at("127.0.0.2")}));
  // 192.0.2.0/24 is for documentation: no host has it.
  EXPECT_FALSE(is_refused(from, {nobody_at("192.0.2.1"), nobody_at("127.0.0.2")}));
}

}  // namespace
}  // namespace allrail::transport::control
