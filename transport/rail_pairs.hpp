// Which rails of two hosts are tried as the two ends of one link, and in which order. Pure.
//
// Nothing here can know which rails reach each other: two InfiniBand fabrics may have the same
// prefix, and routed networks reach each other with different ones. So every pair that might work
// is listed, the likely ones first; the fabric probes them in this order (pair_probe.hpp), and the
// first that answers takes both its ends.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace allrail::transport {

/// What a link runs over; both its ends must be the same.
enum class Network : std::uint8_t { InfiniBand, RoceV1, RoceV2Ipv4, RoceV2Ipv6, TcpIpv4, TcpIpv6 };
inline constexpr int kNetworks = 6;
const char* network_name(Network network);

/// An address of an IP network or a GID; IPv4 in its mapped form (::ffff:10.0.0.1).
using NetworkAddress = std::array<std::uint8_t, 16>;
/// Bits before the IPv4 address in its mapped form.
inline constexpr int kMappedIpv4Bits = 96;

/// The leading `bits` of `prefix` name a network; the other bits are zero.
struct Subnet {
  NetworkAddress prefix{};
  std::uint8_t bits = 0;  // 0: not known, and equal to no other
};
Subnet make_subnet(const NetworkAddress& address, int bits);
bool same_subnet(const Subnet& one, const Subnet& other);

/// What a peer must know of a rail to pair it.
struct RailEnd {
  std::string name;
  Network network = Network::TcpIpv4;
  Subnet subnet;
  std::uint32_t rate_mbit = 0;  // 0: not known
};

/// The rails of two ranks, each in its own order.
struct RailEnds {
  std::span<const RailEnd> lower;  // of the lower rank
  std::span<const RailEnd> higher;
};
struct RailPair {
  int lower = 0;  // positions in RailEnds
  int higher = 0;
  friend bool operator==(const RailPair&, const RailPair&) = default;
};

/// One item of ALLRAIL_RAIL_PAIRS: two rails by name or by place in their host's list, either way
/// round.
using WantedPair = std::pair<std::string, std::string>;
bool is_named(const RailEnd& end, int place, const std::string& name);

/// Both ends compute the same list. With `wanted` only its pairs that these hosts have, in its
/// order. Otherwise first the pairs in one subnet, then, among rails whose subnet the other host
/// has not, those at equal places, then all others; places are counted by falling rate, then in the
/// host's own order. Empty: the hosts have no network in common, or none of `wanted`.
std::vector<RailPair> pair_rails(const RailEnds& ends, std::span<const WantedPair> wanted = {});

}  // namespace allrail::transport
