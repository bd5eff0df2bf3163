// Where the peers of a verbs rail connect to, as it is handed out at start-up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/tcp/socket.hpp"

namespace allrail::transport::verbs {

/// Addresses of a host on which a rail listens for side channels, at most.
inline constexpr std::size_t kMaxSideAddresses = 4;

/// What libibverbs calls 4096 bytes.
inline constexpr std::uint8_t kLargestMtuCode = 5;

struct RailAddress {
  int rail = 0;                        // its number in its process
  std::uint8_t mtu_code = 1;           // of the port, as libibverbs counts: 1 is 256 bytes, 5 4096
  std::optional<Endpoint> manager;     // for librdmacm; none: the port has no address, or is not to
  std::vector<Endpoint> side_channel;  // for direct links; none: they are not wanted
  friend bool operator==(const RailAddress&, const RailAddress&) = default;
};

std::vector<std::byte> encode(const RailAddress& address);
/// Nothing for bytes that encode() did not write: those of another kind of rail among them.
std::optional<RailAddress> decode_rail_address(std::span<const std::byte> bytes);

/// How the link between two rails is made. The same at both ends. librdmacm gives both queue pairs
/// the MTU of the end that connects, and a port with a smaller one loses the packets: it is a way
/// only where both have the same.
enum class Way { None, Manager, Direct };
Way common_way(const RailAddress& one, const RailAddress& other);
/// The way to try after `last` has failed: the other one, if the two rails have it in common.
Way next_way(const RailAddress& one, const RailAddress& other, Way last);

}  // namespace allrail::transport::verbs
