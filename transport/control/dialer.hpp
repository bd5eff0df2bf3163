// Tries to reach another node over all its addresses, one after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/handle.hpp"
#include "transport/control/event_loop.hpp"
#include "transport/tcp/handshake.hpp"
#include "transport/tcp/interfaces.hpp"
#include "transport/tcp/socket.hpp"

namespace allrail::transport::control {

/// Where to, as whom, and what for.
struct DialPlan {
  HandshakeIdentity identity;
  int to_rank = -1;
  std::vector<RailPlace> from;  // this host's rails
  std::vector<Endpoint> to;     // addresses of the other host's rails
  /// Only looks whether somebody listens there: no handshake.
  bool probe = false;
};

/// From which of my rails to which of the addresses a connection is tried, by place in both lists:
/// every address from a rail in its subnet, or, where none is, from each of them.
struct DialAttempt {
  std::size_t from = 0;
  std::size_t to = 0;
  friend bool operator==(const DialAttempt&, const DialAttempt&) = default;
};
std::vector<DialAttempt> dial_order(const std::vector<RailPlace>& from,
                                    const std::vector<Endpoint>& to);

class Dialer {
 public:
  struct Events {
    /// Somebody listens there; with the finished connection unless it was a probe. The handler may
    /// destroy the dialer.
    std::function<void(base::UniqueFd fd)> reached;
    /// A connection stood, but nobody handled it: the process lives and is stopped or busy.
    std::function<void()> unanswered;
    /// All addresses failed. `refused`: at least one of them has a host whose kernel says that
    /// nobody listens any more.
    std::function<void(bool refused, const std::string& reason)> failed;
  };
  Dialer(EventLoop& loop, const DialPlan& plan, Events events);
  ~Dialer();
  Dialer(const Dialer&) = delete;
  Dialer& operator=(const Dialer&) = delete;

  /// Notices what is late. Call it every now and then. Either event may follow.
  void tick(std::int64_t now_ns);

 private:
  bool tells_of_peer(const Endpoint& to) const;
  void try_next();
  void attempt_failed(std::string reason);  // by value: it may live in what is dropped here
  void on_events();

  EventLoop& loop_;
  const DialPlan& plan_;
  Events events_;
  const std::vector<DialAttempt> attempts_;
  std::size_t next_ = 0;
  base::UniqueFd fd_;
  EventLoop::Key key_ = 0;
  std::unique_ptr<ClientHandshake> handshake_;  // once the connection stands
  std::int64_t deadline_ns_ = 0;
  bool refused_ = false;
  std::string reason_ = "no address to reach it";
};

}  // namespace allrail::transport::control
