// A rail over one port of an RDMA device: reliable connections, one per peer, and RDMA writes with
// immediate data over them. Links are connected by librdmacm where both ports have an IP address,
// otherwise directly: over a TCP connection of their own the ends tell each other's queue pair.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/job_secret.hpp"
#include "transport/rail.hpp"

namespace allrail::transport {

struct VerbsRailOptions {
  int index = 0;     // the number of this rail in this process
  std::string name;  // as in messages and settings: "mlx5_0:1"
  /// The IPv4 or IPv6 address of the port, for librdmacm; empty: it has none, or is not to use it.
  std::string address;
  /// Addresses of this host, of any network that the peers reach, for connecting directly; at most
  /// four are taken. Empty: never directly.
  std::vector<std::string> side_addresses;
  std::string device;  // "mlx5_0": asked where there is no address
  int port = 1;        // alike
  int gid_index = 0;   // the entry of the port's GID table that direct links use
  int rank = 0;
  int size = 1;
  std::uint64_t job_hash = 0;
  JobSecret secret;
  /// With other rails to take over, a silent peer is given up after half a second to two seconds,
  /// otherwise after 8 to 30: seven tries, each of one to four times the timeout.
  bool has_siblings = true;
  /// For how long a queue pair may complete nothing of what it was given; 0: twice as long as a
  /// device may take to say that it failed, ten seconds at least.
  std::int64_t overdue_ns = 0;
  /// After which a peer that answered and has not come is asked anew; 0: a minute.
  std::int64_t connect_timeout_ns = 0;
};

/// Listens at once; Rail::address() says where. Throws Error{BadConfiguration} where the address
/// belongs to no RDMA port or there is no such device, Error{ResourceLimit} if the system or the
/// device refuses an object.
std::unique_ptr<Rail> make_verbs_rail(const VerbsRailOptions& options);

}  // namespace allrail::transport
