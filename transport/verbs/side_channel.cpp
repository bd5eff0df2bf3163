#include "transport/verbs/side_channel.hpp"

#include <cerrno>
#include <utility>

#include <sys/socket.h>

#include "lib/base/error.hpp"

namespace allrail::transport::verbs {

SideChannel::Step SideChannel::failed(std::string reason) {
  reason_ = std::move(reason);
  return Step::Failed;
}

bool SideChannel::start(const Endpoint& to, const HandshakeIdentity& identity, int to_rank) {
  // From any address of this host: the peer's decides the route.
  Endpoint from;
  from.is_ipv6 = to.is_ipv6;
  int error_number = 0;
  fd_ = start_connect(from, to, {}, error_number);
  handshake_ = std::make_unique<ClientHandshake>(identity, to_rank);
  if (!fd_) reason_ = base::errno_text(error_number);
  return static_cast<bool>(fd_);
}

bool SideChannel::wants_write() const {
  return !is_connected_ || (handshake_ && handshake_->wants_write());
}

SideChannel::Step SideChannel::prove() {
  if (!is_connected_) {
    // Connected is who can name the other end; a pending attempt has no error either.
    if (const int error_number = connect_error(fd_.get())) {
      return failed(base::errno_text(error_number));
    }
    if (!remote_endpoint(fd_.get())) return Step::Again;
    is_connected_ = true;
  }
  switch (handshake_->step(fd_.get())) {
    case HandshakeState::InProgress:
      return Step::Again;
    case HandshakeState::Failed:
      return failed(handshake_->failure_text());
    case HandshakeState::Done:
      break;
  }
  handshake_.reset();
  return Step::Done;
}

bool SideChannel::send(std::span<const std::byte> message) {
  const ssize_t sent =
      ::send(fd_.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(message.size())) return true;
  (void)failed(sent < 0 ? base::errno_text(errno) : "its side channel is full");
  return false;
}

SideChannel::Step SideChannel::receive(std::span<std::byte> into) {
  while (received_ < into.size()) {
    const auto rest = into.subspan(received_);
    const ssize_t got = ::recv(fd_.get(), rest.data(), rest.size(), MSG_DONTWAIT);
    if (got > 0) {
      received_ += static_cast<std::size_t>(got);
    } else if (got == 0) {
      ended_by_peer_ = closed_by_peer_ = true;
      return failed("the peer closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return Step::Again;
    } else if (errno != EINTR) {
      ended_by_peer_ = errno == ECONNRESET;
      return failed(base::errno_text(errno));
    }
  }
  received_ = 0;
  return Step::Done;
}

}  // namespace allrail::transport::verbs
