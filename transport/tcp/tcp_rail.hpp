// A rail over TCP: one connection per peer, bound to one address or interface of this host.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport/rail.hpp"
#include "transport/tcp/handshake.hpp"

namespace allrail::transport {

struct TcpRailOptions {
  int index = 0;     // the number of this rail in this process
  std::string item;  // an interface ("eth0") or an address ("127.0.0.2"): see interfaces.hpp
  int rank = 0;
  int size = 1;
  int rail_count = 1;  // that this rank has, all kinds together
  std::uint64_t job_hash = 0;
  JobSecret secret;
};

/// Listens at once; Rail::address() says where. Throws Error{BadConfiguration} for an item that
/// cannot be a rail, Error{ResourceLimit} if the system refuses a socket.
std::unique_ptr<Rail> make_tcp_rail(const TcpRailOptions& options);

/// Connections that did not prove that they belong to the job, for tests and allrail-info. `rail`
/// was made by make_tcp_rail().
std::uint64_t tcp_rail_stranger_count(const Rail& rail);

}  // namespace allrail::transport
