// The control plane: what nodes tell each other outside of collectives.
//
// The first rank of each node keeps authenticated TCP links to O(log nodes) other nodes, served by
// a helper thread that sleeps in epoll. It finds lost processes and different calls, and floods
// the first cause to every node. A lost link is not a lost node: a rail may have been cut. A peer
// that is stopped keeps its link and is waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "transport/control/local_node.hpp"
#include "transport/tcp/acceptor.hpp"
#include "transport/tcp/handshake.hpp"
#include "transport/tcp/interfaces.hpp"

namespace allrail::transport {

struct ControlOptions {
  int node = 0;
  int node_count = 1;
  int rank = 0;  // of this process
  int size = 1;
  std::uint64_t job_hash = 0;
  JobSecret secret;
  std::vector<std::string> items;  // one interface or address per rail: see resolve_rail_item()
  int heartbeat_ms = 250;
  int compare_after_ms = 200;  // how long a rank waits in a call before calls are compared
  int connect_ms = 30'000;     // patience for links at start-up
  int reconnect_ms = 3'000;    // patience for a link that was lost
  int goodbye_ms = 1'000;      // the destructor takes no longer,
  int unheard_ms = 20'000;     // or so long if a neighbour that lives has no link to hear it by
};

/// The nodes that `node` has links to: those at distances of powers of two, so that a cause
/// reaches all nodes in O(log nodes) steps. Ascending; symmetric.
std::vector<int> control_neighbours(int node, int node_count);

/// Listens on every rail's address, before the start-up exchange.
class ControlListener {
 public:
  /// Throws Error{BadConfiguration} or Error{ResourceLimit}.
  explicit ControlListener(const ControlOptions& options);
  /// For the start-up exchange; at most 256 bytes.
  std::vector<std::byte> address() const;
  /// Connections that did not prove that they belong to the job.
  std::uint64_t stranger_count() const;

  std::vector<RailPlace> places;
  std::vector<std::unique_ptr<Acceptor>> acceptors;
};

struct ControlPeer {
  int rank = -1;  // the first rank of that node
  std::vector<std::byte> address;
};

class ControlPlaneState;  // control_plane_state.hpp

class ControlPlane {
 public:
  /// `peers`: every node in order, this one included. `local_pids`: the processes of this node in
  /// the order of LocalNode::read_progress(); 0 for those not to be watched (this process).
  /// `local` outlives the control plane. Throws for addresses that are none.
  ControlPlane(ControlListener listener, const ControlOptions& options,
               std::span<const ControlPeer> peers, std::span<const pid_t> local_pids,
               LocalNode& local);
  /// Says goodbye once all local ranks did (or half of goodbye_ms is over), and ends the thread. A
  /// neighbour that is stopped and was never linked, or whose link was cut, would find nobody when
  /// it goes on, and end the job.
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  /// Makes the helper thread look at the node now, for instance after an abort. Any thread.
  void kick() noexcept;
  /// Links that are up. Any thread.
  int links_up() const noexcept;

 private:
  std::unique_ptr<ControlPlaneState> state_;
};

}  // namespace allrail::transport
