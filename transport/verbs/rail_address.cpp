#include "transport/verbs/rail_address.hpp"

#include <algorithm>

namespace allrail::transport::verbs {
namespace {

/// The first byte of every rail's address says its kind.
constexpr std::byte kVerbsAddress{3};
// Kind, rail, whether there is an address for librdmacm, side addresses, MTU.
constexpr std::size_t kHeadBytes = 5;
static_assert(kHeadBytes + (1 + kMaxSideAddresses) * kEndpointBytes <= 256,
              "Rail::address() is at most that long");

bool has_way(const RailAddress& one, const RailAddress& other, Way way) {
  if (way == Way::Direct) return !one.side_channel.empty() && !other.side_channel.empty();
  // librdmacm cannot go from an IPv4 address to an IPv6 one.
  return one.manager && other.manager && one.manager->is_ipv6 == other.manager->is_ipv6 &&
         one.mtu_code == other.mtu_code;
}

}  // namespace

std::vector<std::byte> encode(const RailAddress& address) {
  std::vector<std::byte> bytes{kVerbsAddress, static_cast<std::byte>(address.rail),
                               static_cast<std::byte>(address.manager.has_value()),
                               static_cast<std::byte>(address.side_channel.size()),
                               static_cast<std::byte>(address.mtu_code)};
  const auto add = [&](const Endpoint& endpoint) {
    std::ranges::copy(encode_endpoint(endpoint), std::back_inserter(bytes));
  };
  if (address.manager) add(*address.manager);
  for (const Endpoint& endpoint : address.side_channel) add(endpoint);
  return bytes;
}

std::optional<RailAddress> decode_rail_address(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadBytes || bytes[0] != kVerbsAddress) return std::nullopt;
  const auto managers = std::to_integer<std::size_t>(bytes[2]);
  const auto sides = std::to_integer<std::size_t>(bytes[3]);
  if (managers > 1 || sides > kMaxSideAddresses) return std::nullopt;
  if (bytes.size() != kHeadBytes + (managers + sides) * kEndpointBytes) return std::nullopt;
  RailAddress address;
  address.rail = std::to_integer<int>(bytes[1]);
  address.mtu_code = std::to_integer<std::uint8_t>(bytes[4]);
  if (address.mtu_code == 0 || address.mtu_code > kLargestMtuCode) return std::nullopt;
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
  if (has_way(one, other, Way::Manager)) return Way::Manager;
  return has_way(one, other, Way::Direct) ? Way::Direct : Way::None;
}

Way next_way(const RailAddress& one, const RailAddress& other, Way last) {
  const Way next = last == Way::Manager ? Way::Direct : Way::Manager;
  return has_way(one, other, next) ? next : last;
}

}  // namespace allrail::transport::verbs
