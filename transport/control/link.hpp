// One authenticated connection to another node: messages in, messages out, never blocking.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "lib/base/handle.hpp"
#include "transport/control/event_loop.hpp"
#include "transport/control/messages.hpp"

namespace allrail::transport::control {

class Link {
 public:
  struct Events {
    std::function<void(const Message&)> message;
    /// The link is unusable; the handler may destroy it. `reason` is half a sentence.
    std::function<void(const std::string& reason)> closed;
  };
  Link(EventLoop& loop, base::UniqueFd fd, Events events);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void send(std::vector<std::byte> message);
  /// Nothing waits to be sent. Heartbeats are left out while something does: a peer that does not
  /// read must not make this process grow.
  bool idle() const noexcept { return outgoing_.empty(); }
  /// After what was sent, the peer reads the end of the stream. Reading goes on.
  void finish_sending();
  int descriptor() const noexcept { return fd_.get(); }

 private:
  void on_events(std::uint32_t events);
  /// False: the link is closed, and perhaps `this` is gone.
  bool read_some();
  bool write_some();
  bool handle_messages();
  void close(const std::string& reason);

  EventLoop& loop_;
  base::UniqueFd fd_;
  Events events_;
  EventLoop::Key key_ = 0;
  std::vector<std::byte> incoming_;
  std::vector<std::byte> outgoing_;
  bool finishing_ = false;
  bool finished_ = false;
};

}  // namespace allrail::transport::control
