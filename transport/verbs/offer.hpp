// What the two ends of a direct link tell each other over their side channel: the hello, and what
// each one's queue pair needs to know of the other's.
//
//   connector -> acceptor  offer: hello, path, MAC
//   acceptor -> connector  offer, its MAC covers the connector's
//
// The MAC is that of hello.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/verbs/hello.hpp"
#include "transport/verbs/ports.hpp"

namespace allrail::transport::verbs {

inline constexpr std::size_t kOfferBytes = 77;

/// How a queue pair is reached.
struct PathFacts {
  std::uint32_t qp_number = 0;     // 24 bits
  std::uint32_t first_packet = 0;  // the packet sequence number (PSN) that it starts with: 24 bits
  std::uint16_t lid = 0;           // of InfiniBand
  std::uint8_t mtu_code = 0;       // of the port, as ibv_mtu
  bool is_ethernet = false;
  bool needs_gids = false;  // its port takes no packets without
  GidBytes gid{};
  friend bool operator==(const PathFacts&, const PathFacts&) = default;
};

struct Offer {
  Hello hello;
  PathFacts path;
  friend bool operator==(const Offer&, const Offer&) = default;
};

using OfferBytes = std::array<std::byte, kOfferBytes>;

/// `request` is the offer that this one answers, empty for the connector's own.
OfferBytes encode(const Offer& offer, const HelloContext& context,
                  std::span<const std::byte> request);
/// Nothing if it is no offer, of another version, its MAC is wrong, or it says what cannot be.
/// Input is untrusted.
std::optional<Offer> decode_offer(const OfferBytes& bytes, const HelloContext& context,
                                  std::span<const std::byte> request);

}  // namespace allrail::transport::verbs
