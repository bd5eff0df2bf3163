// The TCP connection over which the two ends of a direct link exchange what their queue pairs need.
// It stays open as long as the link: its end tells that the peer has closed, or is no more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lib/base/handle.hpp"
#include "transport/tcp/handshake.hpp"
#include "transport/tcp/socket.hpp"

namespace allrail::transport::verbs {

/// Move-only; empty by default. Nothing here blocks.
class SideChannel {
 public:
  enum class Step { Again, Done, Failed };

  SideChannel() = default;
  /// One that was accepted, after its handshake.
  explicit SideChannel(base::UniqueFd fd) : fd_(std::move(fd)), is_connected_(true) {}

  explicit operator bool() const { return static_cast<bool>(fd_); }
  int descriptor() const { return fd_.get(); }
  /// Half a sentence: why a step failed.
  const std::string& reason() const { return reason_; }

  /// Starts to connect. False: why is in reason().
  bool start(const Endpoint& to, const HandshakeIdentity& identity, int to_rank);
  /// Goes on until the peer has proved who it is.
  Step prove();
  /// The TCP connection stands: only the peer's process is waited for.
  bool is_connected() const { return is_connected_; }
  bool wants_write() const;

  /// A short message that goes out at once, because few others have gone before.
  bool send(std::span<const std::byte> message);
  /// Collects the next message; Done once it fills `into`, which is the same until then.
  Step receive(std::span<std::byte> into);
  /// The peer has closed it, or its kernel knows of none such. False after a failure of the network
  /// between.
  bool ended_by_peer() const { return ended_by_peer_; }
  /// The peer has closed it, or its process is gone. Not where its kernel gave it up as silent,
  /// when the network between was away.
  bool closed_by_peer() const { return closed_by_peer_; }

 private:
  Step failed(std::string reason);

  base::UniqueFd fd_;
  std::unique_ptr<ClientHandshake> handshake_;
  std::size_t received_ = 0;  // of the message that is being received
  bool is_connected_ = false;
  bool ended_by_peer_ = false;
  bool closed_by_peer_ = false;
  std::string reason_;
};

}  // namespace allrail::transport::verbs
