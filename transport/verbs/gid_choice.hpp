// Which entry of a RoCE port's GID table a rail uses. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "transport/verbs/ports.hpp"

namespace allrail::transport {

/// A queue pair names the entry of the port's table by eight bits.
inline constexpr int kMostGids = 256;

/// What the address in a GID is good for, best first.
enum class GidScope : std::uint8_t { Ipv4, GlobalIpv6, UniqueLocalIpv6, LinkLocal, Unusable };
GidScope scope_of(const GidBytes& bytes);
/// ::ffff:a.b.c.d
bool is_ipv4_mapped(const GidBytes& bytes);

/// The entry to use, null where none can be. On InfiniBand the first. On RoCE version 2 before
/// version 1 and IPv4 before global before unique local IPv6, but a link-local address only where
/// there is no other: peers behind a router cannot reach it, and it says nothing about subnets.
const VerbsGid* best_gid(const VerbsPort& port);
const VerbsGid* find_gid(const VerbsPort& port, int index);

/// The address by which librdmacm knows the port, if this is its GID (null: none); empty: it does
/// not. GIDs of InfiniBand and link-local IPv6 ones are addresses of no interface that can be
/// bound.
std::string ip_address(const VerbsPort& port, const VerbsGid* gid);

/// "10.9.0.1" or "fd00::1".
std::string address_text(const GidBytes& bytes);
/// "1 = 10.9.0.1 (RoCE v2)".
std::string gid_text(const VerbsGid& gid);
/// All of a port, with commas; "none".
std::string gids_text(const VerbsPort& port);

}  // namespace allrail::transport
