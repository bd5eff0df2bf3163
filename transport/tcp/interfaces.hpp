// Network interfaces of this host, and what a rail setting such as "eth0" or "127.0.0.2" names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "transport/rail_pairs.hpp"
#include "transport/tcp/socket.hpp"

namespace allrail::transport {

/// An interface that can be a rail: up, with an address that is routable from it.
struct Interface {
  std::string name;
  Endpoint address;  // IPv4 where it has one; port 0
  bool is_loopback = false;
  int speed_mbit = 0;   // 0: not known (virtual interfaces)
  int prefix_bits = 0;  // leading bits of the address that name its subnet; 0: not known
};

/// All of them, in the system's order.
std::vector<Interface> list_interfaces();

/// Where a TCP rail lives.
struct RailPlace {
  std::string name;    // the setting's item
  std::string device;  // the interface packets must leave by; empty for an item that is an address
  Endpoint address;    // port 0
  bool is_loopback = false;
  int speed_mbit = 0;
  int prefix_bits = 0;
};

/// Resolves an interface name or an address that the host can bind (all of 127.0.0.0/8 among
/// them). Throws Error{BadConfiguration} that names the item and lists what there is.
RailPlace resolve_rail_item(std::string_view item);

/// Whether an address lies in the subnet of an interface with this address and prefix.
bool in_same_subnet(const Endpoint& address, const Endpoint& of, int prefix_bits);

/// What the pairing of rails knows of it.
RailEnd rail_end(const RailPlace& place);

}  // namespace allrail::transport
