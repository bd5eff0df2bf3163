// Where the peers of a verbs rail connect to, as it is handed out at start-up.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "transport/tcp/socket.hpp"

namespace allrail::transport::verbs {

/// Addresses of a host on which a rail listens for side channels, at most.
inline constexpr std::size_t kMaxSideAddresses = 4;

struct RailAddress {
  int rail = 0;                        // its number in its process
  std::optional<Endpoint> manager;     // for librdmacm; none: the port has no address, or is not to
  std::vector<Endpoint> side_channel;  // for direct links; none: they are not wanted
  friend bool operator==(const RailAddress&, const RailAddress&) = default;
};

std::vector<std::byte> encode(const RailAddress& address);
/// Nothing for bytes that encode() did not write: those of another kind of rail among them.
std::optional<RailAddress> decode_rail_address(std::span<const std::byte> bytes);

/// How the link between two rails is made. The same at both ends.
enum class Way { None, Manager, Direct };
Way common_way(const RailAddress& one, const RailAddress& other);

}  // namespace allrail::transport::verbs
