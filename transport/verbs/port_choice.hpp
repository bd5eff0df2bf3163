// Which RDMA ports of this host become rails, and why the others do not. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/verbs/ports.hpp"

namespace allrail::transport {

struct PortWish {
  /// ALLRAIL_RAILS: `auto`, `verbs`, `tcp`; names such as `mlx5_0:1,rxe0` (port 1 is meant where
  /// none is named); or `^mlx5_0:1,^mlx5_1` (a device alone: all its ports).
  std::string_view setting = "auto";
  /// ALLRAIL_GID_INDEX, for every port that is taken; -1: chosen.
  int gid_index = -1;
  /// Where the process runs; -1: not known.
  int numa_node = -1;
  /// What else the setting may name: interfaces and addresses. They are skipped here.
  std::span<const std::string> other_names;
};

struct PortChoice {
  bool taken = false;
  int gid_index = -1;  // -1: not taken, or an InfiniBand port that needs none
  /// "taken: RoCE, 100000 Mbit/s, GID 3 = 10.9.0.1 (RoCE v2), nearest"; "not taken: port is down".
  std::string reason;
};

struct PortChoices {
  std::vector<PortChoice> of_port;  // one per port given
  std::vector<std::size_t> taken;   // the rails in their order: positions in the ports given
};

/// `auto` and excludes take every active port of the best link layer (InfiniBand before RoCE),
/// nearest first, then by name; of a PCI slot only as many as its PCIe link can feed. None at all
/// is no error then, but is with `verbs`; names take these ports in this order. At most kMaxRails.
/// Throws Error{BadConfiguration} for what is unknown or cannot be used, and lists what there is.
PortChoices choose_ports(std::span<const VerbsPort> ports, const PortWish& wish);

/// Whether an item of ALLRAIL_RAILS, without ^, looks like a verbs port: it names a device of
/// `ports`, or ends in a colon and a number that is no part of an address.
bool names_verbs_port(std::string_view item, std::span<const VerbsPort> ports);

/// Such as "mlx5_0:1 (InfiniBand, active, 100000 Mbit/s), rxe0:1 (RoCE, down)"; "none".
std::string ports_text(std::span<const VerbsPort> ports);

}  // namespace allrail::transport
