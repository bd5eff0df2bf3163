// By what the network knows a port, which may change while a job runs: a subnet manager gives it
// another LID or partition key, an address is taken from its interface and given back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <infiniband/verbs.h>

#include "transport/verbs/ports.hpp"

namespace allrail::transport::verbs {

struct PortIdentity {
  std::uint16_t lid = 0;            // of InfiniBand
  std::uint16_t partition_key = 0;  // the one at index 0, which queue pairs use
  bool is_ethernet = false;
  int gid_index = -1;  // where the rail's GID lies in the port's table; -1: it is not there
  GidBytes gid{};
  std::uint32_t gid_type = 0;  // as ibv_gid_type
};

/// As the rail is made, which uses this entry of the GID table. Nothing if the device does not
/// tell.
std::optional<PortIdentity> read_identity(ibv_context& device, std::uint8_t port, int gid_index);

/// As it is now. On Ethernet a rail keeps its GID, which its peers know, wherever that lies by now;
/// on InfiniBand it keeps the place. Nothing if the device does not tell.
std::optional<PortIdentity> read_identity_again(ibv_context& device, std::uint8_t port,
                                                const PortIdentity& before);

/// Why links that were made before are of no use now, such as "its LID is 7 now, and was 3". Empty:
/// they are, or only the GID that was gone is there again.
std::string why_outdated(const PortIdentity& before, const PortIdentity& now);

}  // namespace allrail::transport::verbs
