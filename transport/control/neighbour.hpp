// Another node that this node keeps a control link to: connects, reconnects, and finds out whether
// a link was lost because the network was cut or because the process is gone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/control/dialer.hpp"
#include "transport/control/link.hpp"

namespace allrail::transport::control {

struct NeighbourTimes {
  std::int64_t connect_ns = 30'000'000'000;   // patience at start-up
  std::int64_t reconnect_ns = 3'000'000'000;  // patience once a link is lost
};

class Neighbour {
 public:
  enum class State { Connecting, Up, Lost, Left, Dead };
  struct Events {
    std::function<void(Neighbour&)> up;
    std::function<void(Neighbour&, const Message&)> message;
    /// It will not come back; `reason` is half a sentence.
    std::function<void(Neighbour&, const std::string& reason)> dead;
  };
  /// `plan.probe` tells the side that is connected to: it dials only to see whether the peer lives.
  Neighbour(EventLoop& loop, int node, DialPlan plan, NeighbourTimes times, Events events);

  int node() const noexcept { return node_; }
  int rank() const noexcept { return plan_.to_rank; }
  State state() const noexcept { return state_; }
  bool linked() const noexcept { return link_ != nullptr; }
  bool dials() const noexcept { return !plan_.probe; }
  /// There is no link, and nothing says that there will be none: its process lives, as far as is
  /// known, and may be stopped.
  bool may_come() const noexcept {
    return state_ == State::Lost || (state_ == State::Connecting && (has_answered_ || !was_tried_));
  }

  void tick(std::int64_t now_ns);
  /// Takes over a connection that the peer made; replaces a link whose loss was not noticed yet.
  void adopt(base::UniqueFd fd);
  /// Without effect while there is no link.
  void send(const std::vector<std::byte>& message);
  /// Sends only if nothing else waits to be sent.
  void send_if_idle(const std::vector<std::byte>& message);
  /// Says goodbye on the link. What happens to the link from now on is no loss.
  void say_goodbye();
  /// The peer said goodbye.
  void mark_left() noexcept { state_ = State::Left; }

 private:
  void on_closed(const std::string& reason);
  void on_dial_failed(bool refused, const std::string& reason);
  void on_reached(base::UniqueFd fd);
  void on_sign_of_life();

  EventLoop& loop_;
  const int node_;
  const DialPlan plan_;
  const NeighbourTimes times_;
  const Events events_;
  State state_ = State::Connecting;
  std::unique_ptr<Link> link_;
  std::unique_ptr<Dialer> dialer_;
  bool said_goodbye_ = false;
  bool was_tried_ = false;     // to the end
  bool has_answered_ = false;  // its kernel at least
  std::int64_t sign_of_life_ns_;
  std::int64_t next_dial_ns_;
  std::string lost_reason_ = "it never connected";
};

}  // namespace allrail::transport::control
