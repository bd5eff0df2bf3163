// What the pairing of rails knows of an RDMA port: its network and its subnet.
#pragma once

#include "transport/rail_pairs.hpp"
#include "transport/verbs/ports.hpp"

namespace allrail::transport {

/// Of a taken port and the GID chosen for it (gid_index -1: an InfiniBand port without one).
RailEnd rail_end(const VerbsPort& port, int gid_index);

}  // namespace allrail::transport
