// Which rails this process takes, by the settings ALLRAIL_RAILS and ALLRAIL_GID_INDEX.
#pragma once

#include <string>
#include <vector>

#include "include/allrail/options.hpp"
#include "lib/diagnostics.hpp"
#include "transport/rail_pairs.hpp"

namespace allrail {

struct RailChoice {
  std::string name;  // "eth0", "127.0.0.2", "mlx5_0:1"
  transport::RailEnd end;
  std::string device;  // RDMA device or interface; empty: an address of none, or the loopback
  // Of a verbs port:
  std::string address;  // the IP address of the GID that was chosen; empty: connects without
  int port = 1;
  int gid_index = 0;
};

/// All of one kind.
struct RailChoices {
  bool verbs = false;
  std::vector<RailChoice> rails;  // in order of preference
  /// Interfaces or addresses of this host where the control plane listens.
  std::vector<std::string> control;
  /// Of verbs rails: addresses of this host over which they connect directly; empty: never.
  std::vector<std::string> side_addresses;
  std::string note;  // for the user, once per job; empty: nothing
};

/// `one_host`: all ranks run on this host, so that `auto` means loopback.
/// @throws Error{BadConfiguration} where the setting leaves no rail, names something that is not
/// there, or mixes verbs ports with interfaces.
RailChoices choose_rails(const Options& options, bool one_host);

/// Every RDMA port and every interface of this host, and what became of it.
std::vector<diagnostics::RailInfo> survey_rails(const Options& options);

}  // namespace allrail
