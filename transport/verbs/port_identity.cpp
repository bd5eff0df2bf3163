#include "transport/verbs/port_identity.hpp"

#include <algorithm>

#include <endian.h>

#include "lib/base/error.hpp"
#include "transport/verbs/gid_choice.hpp"

namespace allrail::transport::verbs {
namespace {

/// The LID and the partition key. False if the device does not tell.
bool read_numbers(ibv_context& device, std::uint8_t port, PortIdentity& identity, int& gids) {
  ibv_port_attr attributes{};
  __be16 key = 0;
  if (ibv_query_port(&device, port, &attributes) != 0) return false;
  if (ibv_query_pkey(&device, port, 0, &key) != 0) return false;
  identity.lid = attributes.lid;
  identity.partition_key = be16toh(key);
  identity.is_ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
  gids = attributes.gid_tbl_len;
  return true;
}

/// False for a place that is empty.
bool read_gid(ibv_context& device, std::uint8_t port, int index, PortIdentity& identity) {
  ibv_gid_entry entry{};
  if (index < 0 || ibv_query_gid_ex(&device, port, static_cast<std::uint32_t>(index), &entry, 0)) {
    return false;
  }
  identity.gid_index = index;
  identity.gid_type = entry.gid_type;
  std::copy_n(entry.gid.raw, identity.gid.size(), identity.gid.begin());
  return true;
}

}  // namespace

std::optional<PortIdentity> read_identity(ibv_context& device, std::uint8_t port, int gid_index) {
  PortIdentity identity;
  int gids = 0;
  if (!read_numbers(device, port, identity, gids)) return std::nullopt;
  if (!read_gid(device, port, gid_index, identity)) return std::nullopt;
  return identity;
}

std::optional<PortIdentity> read_identity_again(ibv_context& device, std::uint8_t port,
                                                const PortIdentity& before) {
  PortIdentity now = before;
  now.gid_index = -1;
  int gids = 0;
  if (!read_numbers(device, port, now, gids)) return std::nullopt;
  if (!now.is_ethernet) {
    if (!read_gid(device, port, std::max(before.gid_index, 0), now)) return std::nullopt;
    return now;
  }
  const auto lies_at = [&](int index) {
    PortIdentity found;
    return read_gid(device, port, index, found) && found.gid == before.gid &&
           found.gid_type == before.gid_type;
  };
  if (lies_at(before.gid_index)) now.gid_index = before.gid_index;
  for (int index = 0; index < std::min(gids, kMostGids) && now.gid_index < 0; ++index) {
    if (lies_at(index)) now.gid_index = index;
  }
  return now;
}

std::string why_outdated(const PortIdentity& before, const PortIdentity& now) {
  if (now.lid != before.lid) {
    return fmt::format("its LID is {} now, and was {}", now.lid, before.lid);
  }
  if (now.partition_key != before.partition_key) {
    return fmt::format("its partition key is {:#x} now, and was {:#x}", now.partition_key,
                       before.partition_key);
  }
  if (now.gid != before.gid) {
    return fmt::format("its GID is {} now, and was {}", address_text(now.gid),
                       address_text(before.gid));
  }
  if (now.gid_index < 0 && before.gid_index >= 0) {
    return fmt::format("its GID {} is gone", address_text(before.gid));
  }
  if (now.gid_index != before.gid_index && before.gid_index >= 0) {
    return fmt::format("its GID {} has moved to index {}", address_text(now.gid), now.gid_index);
  }
  return {};
}

}  // namespace allrail::transport::verbs
