#include "transport/tcp/interfaces.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <fstream>
#include <memory>

#include <ifaddrs.h>
#include <net/if.h>

#include "lib/base/error.hpp"

namespace allrail::transport {
namespace {

/// An address of an interface, usable or not.
struct FoundAddress {
  std::string name;
  bool is_up = false;
  bool is_loopback = false;
  bool is_usable = false;
  Endpoint address;
  int prefix_bits = 0;
};

/// fe80::/10 needs a scope that an address alone does not carry.
bool is_link_local(const Endpoint& endpoint) {
  return endpoint.is_ipv6 && endpoint.address[0] == 0xFE && (endpoint.address[1] & 0xC0) == 0x80;
}

/// Bits that are set in a netmask.
int count_bits(const sockaddr* mask) {
  const auto endpoint = mask != nullptr ? from_system_address(mask) : std::nullopt;
  if (!endpoint) return 0;
  int bits = 0;
  for (const std::uint8_t byte : endpoint->address) bits += std::popcount(byte);
  return bits;
}

std::vector<FoundAddress> find_addresses() {
  ifaddrs* first = nullptr;
  base::check_minus_one(::getifaddrs(&first), "cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(
      first, [](ifaddrs* list) { ::freeifaddrs(list); });
  std::vector<FoundAddress> found;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    FoundAddress item;
    item.name = entry->ifa_name;
    item.is_up = (entry->ifa_flags & IFF_UP) != 0;
    item.is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    if (entry->ifa_addr != nullptr) {
      if (const auto endpoint = from_system_address(entry->ifa_addr)) {
        item.address = *endpoint;
        item.is_usable = !is_link_local(*endpoint);
        item.prefix_bits = count_bits(entry->ifa_netmask);
      }
    }
    found.push_back(item);
  }
  return found;
}

int read_speed_mbit(const std::string& name) {
  std::ifstream file("/sys/class/net/" + name + "/speed");
  int speed_mbit = 0;
  return file >> speed_mbit && speed_mbit > 0 ? speed_mbit : 0;
}

std::string list_text(const std::vector<Interface>& interfaces) {
  std::string text;
  for (const Interface& one : interfaces) {
    text +=
        fmt::format("{}{} ({})", text.empty() ? "" : ", ", one.name, one.address.address_text());
  }
  return text.empty() ? "none" : text;
}

[[noreturn]] void fail_with_list(std::string_view item, std::string_view cause) {
  base::fail(Code::BadConfiguration,
             "the rail {} {}; interfaces that are up and have an address, for ALLRAIL_RAILS: {}",
             item, cause, list_text(list_interfaces()));
}

}  // namespace

std::vector<Interface> list_interfaces() {
  std::vector<Interface> interfaces;
  for (const FoundAddress& found : find_addresses()) {
    if (!found.is_up || !found.is_usable) continue;
    const auto same = std::find_if(interfaces.begin(), interfaces.end(),
                                   [&](const Interface& one) { return one.name == found.name; });
    if (same == interfaces.end()) {
      interfaces.push_back({found.name, found.address, found.is_loopback,
                            read_speed_mbit(found.name), found.prefix_bits});
    } else if (same->address.is_ipv6 && !found.address.is_ipv6) {
      same->address = found.address;
      same->prefix_bits = found.prefix_bits;
    }
  }
  return interfaces;
}

RailPlace resolve_rail_item(std::string_view item) {
  RailPlace place;
  place.name = std::string(item);
  if (const auto address = parse_address(item)) {
    if (is_link_local(*address)) {
      fail_with_list(item, "is a link-local address, which a rail cannot use; name its interface");
    }
    try {
      (void)listen_on(*address, 1);
    } catch (const Error& error) {
      fail_with_list(item, fmt::format("is not an address of this host ({})", error.what()));
    }
    place.address = *address;
    place.is_loopback = address->is_loopback();
    const auto interfaces = list_interfaces();
    for (const FoundAddress& found : find_addresses()) {
      // An interface may have several addresses, and the loopback has a whole network of them.
      const bool is_its =
          found.address == *address ||
          (found.is_loopback && in_same_subnet(*address, found.address, found.prefix_bits));
      if (!is_its) continue;
      place.prefix_bits = found.prefix_bits;
      const auto at = std::ranges::find(interfaces, found.name, &Interface::name);
      if (at != interfaces.end()) place.speed_mbit = at->speed_mbit;
    }
    return place;
  }
  for (const Interface& one : list_interfaces()) {
    if (one.name != item) continue;
    place.device = one.name;
    place.address = one.address;
    place.is_loopback = one.is_loopback;
    place.speed_mbit = one.speed_mbit;
    place.prefix_bits = one.prefix_bits;
    return place;
  }
  bool exists = false;
  bool is_up = false;
  for (const FoundAddress& found : find_addresses()) {
    if (found.name != item) continue;
    exists = true;
    is_up = is_up || found.is_up;
  }
  if (!exists) fail_with_list(item, "is neither a network interface nor an address of this host");
  if (!is_up) fail_with_list(item, "is an interface that is down; bring it up or name another");
  fail_with_list(item, "is an interface without an address; give it one or name another");
}

bool in_same_subnet(const Endpoint& address, const Endpoint& of, int prefix_bits) {
  if (address.is_ipv6 != of.is_ipv6 || prefix_bits == 0) return false;
  return make_subnet(address.address, prefix_bits).prefix ==
         make_subnet(of.address, prefix_bits).prefix;
}

RailEnd rail_end(const RailPlace& place) {
  RailEnd end;
  end.name = place.name;
  end.network = place.address.is_ipv6 ? Network::TcpIpv6 : Network::TcpIpv4;
  end.rate_mbit = static_cast<std::uint32_t>(place.speed_mbit);
  if (place.prefix_bits == 0) return end;
  if (place.address.is_ipv6) {
    end.subnet = make_subnet(place.address.address, place.prefix_bits);
    return end;
  }
  NetworkAddress mapped{};
  mapped[10] = mapped[11] = 0xFF;
  std::copy_n(place.address.address.begin(), 4, mapped.begin() + 12);
  end.subnet = make_subnet(mapped, kMappedIpv4Bits + place.prefix_bits);
  return end;
}

}  // namespace allrail::transport
