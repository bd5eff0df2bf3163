#include "transport/verbs/gid_choice.hpp"

#include <algorithm>
#include <tuple>

#include <arpa/inet.h>
#include <fmt/format.h>

namespace allrail::transport {
namespace {

/// Smaller is better.
std::tuple<bool, bool, GidScope, int> preference(const VerbsGid& gid) {
  const GidScope scope = scope_of(gid.bytes);
  return {scope == GidScope::LinkLocal, gid.type != GidType::RoceV2, scope, gid.index};
}

const char* type_text(GidType type) {
  switch (type) {
    case GidType::InfiniBand:
      return "InfiniBand";
    case GidType::RoceV1:
      return "RoCE v1";
    case GidType::RoceV2:
      break;
  }
  return "RoCE v2";
}

}  // namespace

bool is_ipv4_mapped(const GidBytes& bytes) {
  return std::all_of(bytes.begin(), bytes.begin() + 10, [](auto byte) { return byte == 0; }) &&
         bytes[10] == 0xFF && bytes[11] == 0xFF;
}

GidScope scope_of(const GidBytes& bytes) {
  if (is_ipv4_mapped(bytes)) {
    if (bytes[12] == 169 && bytes[13] == 254) return GidScope::LinkLocal;
    const bool host = bytes[12] != 0 && bytes[12] != 127 && bytes[12] < 224;
    return host ? GidScope::Ipv4 : GidScope::Unusable;
  }
  if (bytes[0] == 0xFE && (bytes[1] & 0xC0) == 0x80) return GidScope::LinkLocal;
  if ((bytes[0] & 0xFE) == 0xFC) return GidScope::UniqueLocalIpv6;
  // Multicast, the empty address and ::1.
  if (bytes[0] == 0xFF) return GidScope::Unusable;
  if (std::all_of(bytes.begin(), bytes.end() - 1, [](auto byte) { return byte == 0; }) &&
      bytes[15] < 2) {
    return GidScope::Unusable;
  }
  return GidScope::GlobalIpv6;
}

const VerbsGid* best_gid(const VerbsPort& port) {
  const VerbsGid* best = nullptr;
  for (const VerbsGid& gid : port.gids) {
    if (scope_of(gid.bytes) == GidScope::Unusable) continue;
    if (port.link_layer == LinkLayer::InfiniBand) {
      if (best == nullptr || gid.index < best->index) best = &gid;
    } else if (best == nullptr || preference(gid) < preference(*best)) {
      best = &gid;
    }
  }
  return best;
}

const VerbsGid* find_gid(const VerbsPort& port, int index) {
  const auto found =
      std::ranges::find_if(port.gids, [&](const VerbsGid& gid) { return gid.index == index; });
  return found == port.gids.end() ? nullptr : &*found;
}

std::string ip_address(const VerbsPort& port, const VerbsGid* gid) {
  if (gid == nullptr || port.link_layer != LinkLayer::Ethernet) return {};
  const GidScope scope = scope_of(gid->bytes);
  if (scope == GidScope::Unusable) return {};
  if (scope == GidScope::LinkLocal && !is_ipv4_mapped(gid->bytes)) return {};
  return address_text(gid->bytes);
}

std::string address_text(const GidBytes& bytes) {
  char text[INET6_ADDRSTRLEN] = {};
  const bool is_ipv4 = is_ipv4_mapped(bytes);
  ::inet_ntop(is_ipv4 ? AF_INET : AF_INET6, bytes.data() + (is_ipv4 ? 12 : 0), text, sizeof(text));
  return text;
}

std::string gid_text(const VerbsGid& gid) {
  return fmt::format("{} = {} ({})", gid.index, address_text(gid.bytes), type_text(gid.type));
}

std::string gids_text(const VerbsPort& port) {
  std::string text;
  for (const VerbsGid& gid : port.gids) {
    text += (text.empty() ? "" : ", ") + gid_text(gid);
  }
  return text.empty() ? "none" : text;
}

}  // namespace allrail::transport
