// The helper thread of the control plane and what it keeps.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "transport/control/call_watch.hpp"
#include "transport/control/control_plane.hpp"
#include "transport/control/event_loop.hpp"
#include "transport/control/late_rank.hpp"
#include "transport/control/neighbour.hpp"

namespace allrail::transport {

class ControlPlaneState {
 public:
  ControlPlaneState(ControlListener listener, const ControlOptions& options,
                    std::span<const ControlPeer> peers, std::span<const pid_t> local_pids,
                    LocalNode& local);
  /// Ends the thread, after goodbyes.
  ~ControlPlaneState();
  ControlPlaneState(const ControlPlaneState&) = delete;
  ControlPlaneState& operator=(const ControlPlaneState&) = delete;

  void kick() noexcept;
  int links_up() const noexcept { return links_up_.load(std::memory_order_relaxed); }

 private:
  struct WatchedProcess {
    pid_t pid = 0;
    base::UniqueFd fd;
    control::EventLoop::Key key = 0;
  };

  void watch_processes(std::span<const pid_t> pids);
  void make_neighbours(std::span<const ControlPeer> peers);
  void watch_listeners();

  void run() noexcept;
  void tick();
  int timeout_ms() const;
  bool finished() const;
  void take_connections(Acceptor& acceptor);
  void on_message(control::Neighbour& from, const control::Message& message);
  void on_process_ended(std::size_t index);
  void on_neighbour_dead(const control::Neighbour& neighbour, const std::string& reason);
  void check_calls(std::int64_t now_ns);
  void check_goodbye(std::int64_t now_ns);
  /// The first cause that this node learns is written into the node and told to all neighbours;
  /// later ones are dropped. A cause that a local rank has set meanwhile goes first.
  void learn(const AbortCause& cause);
  void adopt_local_abort();

  const ControlOptions options_;
  LocalNode& local_;
  ControlListener listener_;
  control::EventLoop loop_;
  base::UniqueFd kick_fd_;
  std::vector<WatchedProcess> processes_;
  std::vector<std::unique_ptr<control::Neighbour>> neighbours_;
  control::CallWatch calls_;
  control::LateWatch late_;
  std::vector<LocalProgress> progress_;
  std::optional<AbortCause> cause_;
  bool said_goodbye_ = false;
  std::int64_t linked_at_ns_ = 0;  // the newest link
  std::int64_t next_heartbeat_ns_ = 0;
  std::int64_t leaving_since_ns_ = 0;  // 0: not leaving
  std::atomic<bool> leaving_{false};
  std::atomic<int> links_up_{0};
  std::thread thread_;
};

}  // namespace allrail::transport
