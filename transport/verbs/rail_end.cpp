#include "transport/verbs/rail_end.hpp"

#include "transport/verbs/gid_choice.hpp"

namespace allrail::transport {
namespace {

constexpr int kLinkLocalIpv6Bits = 64;
constexpr int kLinkLocalIpv4Bits = kMappedIpv4Bits + 16;
constexpr int kInfiniBandPrefixBits = 64;

Network network_of(const VerbsPort& port, const VerbsGid* gid) {
  if (port.link_layer == LinkLayer::InfiniBand || gid == nullptr) return Network::InfiniBand;
  if (gid->type != GidType::RoceV2) return Network::RoceV1;
  return is_ipv4_mapped(gid->bytes) ? Network::RoceV2Ipv4 : Network::RoceV2Ipv6;
}

int subnet_bits(const VerbsGid& gid) {
  // The port makes its link-local GID itself; no interface need have that address.
  if (scope_of(gid.bytes) != GidScope::LinkLocal) return gid.prefix_bits;
  return is_ipv4_mapped(gid.bytes) ? kLinkLocalIpv4Bits : kLinkLocalIpv6Bits;
}

}  // namespace

RailEnd rail_end(const VerbsPort& port, int gid_index) {
  const VerbsGid* gid = find_gid(port, gid_index);
  RailEnd end;
  end.name = port.name();
  end.network = network_of(port, gid);
  end.rate_mbit = port.rate_mbit;
  if (end.network == Network::InfiniBand) {
    NetworkAddress bytes{};
    for (std::size_t i = 0; i < 8; ++i) {
      bytes[i] = static_cast<std::uint8_t>(port.subnet_prefix >> (56 - 8 * i));
    }
    end.subnet = make_subnet(bytes, kInfiniBandPrefixBits);
  } else {
    end.subnet = make_subnet(gid->bytes, subnet_bits(*gid));
  }
  return end;
}

}  // namespace allrail::transport
