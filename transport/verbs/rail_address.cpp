#include "transport/verbs/rail_address.hpp"

#include <algorithm>

namespace allrail::transport::verbs {
namespace {

/// The first byte of every rail's address says its kind.
constexpr std::byte kKind{3};
// Kind, rail, whether there is an address for librdmacm, side addresses.
constexpr std::size_t kHeadBytes = 4;
static_assert(kHeadBytes + (1 + kMaxSideAddresses) * kEndpointBytes <= 256,
              "Rail::address() is at most that long");

}  // namespace

std::vector<std::byte> encode(const RailAddress& address) {
  std::vector<std::byte> bytes{kKind, static_cast<std::byte>(address.rail),
                               static_cast<std::byte>(address.manager.has_value()),
                               static_cast<std::byte>(address.side_channel.size())};
  const auto add = [&](const Endpoint& endpoint) {
    std::ranges::copy(encode_endpoint(endpoint), std::back_inserter(bytes));
  };
  if (address.manager) add(*address.manager);
  for (const Endpoint& endpoint : address.side_channel) add(endpoint);
  return bytes;
}

std::optional<RailAddress> decode_rail_address(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadBytes || bytes[0] != kKind) return std::nullopt;
  const auto managers = std::to_integer<std::size_t>(bytes[2]);
  const auto sides = std::to_integer<std::size_t>(bytes[3]);
  if (managers > 1 || sides > kMaxSideAddresses) return std::nullopt;
  if (bytes.size() != kHeadBytes + (managers + sides) * kEndpointBytes) return std::nullopt;
  RailAddress address;
  address.rail = std::to_integer<int>(bytes[1]);
  for (std::size_t at = kHeadBytes; at < bytes.size(); at += kEndpointBytes) {
    const auto endpoint = decode_endpoint(bytes.subspan(at, kEndpointBytes));
    if (!endpoint) return std::nullopt;
    if (managers == 1 && at == kHeadBytes) {
      address.manager = endpoint;
    } else {
      address.side_channel.push_back(*endpoint);
    }
  }
  return address;
}

Way common_way(const RailAddress& one, const RailAddress& other) {
  // librdmacm cannot go from an IPv4 address to an IPv6 one.
  if (one.manager && other.manager && one.manager->is_ipv6 == other.manager->is_ipv6) {
    return Way::Manager;
  }
  if (!one.side_channel.empty() && !other.side_channel.empty()) return Way::Direct;
  return Way::None;
}

}  // namespace allrail::transport::verbs
