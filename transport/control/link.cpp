#include "transport/control/link.hpp"

#include <array>
#include <cerrno>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "lib/base/error.hpp"

namespace allrail::transport::control {

Link::Link(EventLoop& loop, base::UniqueFd fd, Events events)
    : loop_(loop), fd_(std::move(fd)), events_(std::move(events)) {
  key_ =
      loop_.add(fd_.get(), EPOLLIN | EPOLLRDHUP, [this](std::uint32_t what) { on_events(what); });
  if (key_ == 0) base::fail(Code::ResourceLimit, "watching a control link failed");
}

Link::~Link() { loop_.remove(key_); }

void Link::send(std::vector<std::byte> message) {
  if (finishing_) return;
  outgoing_.insert(outgoing_.end(), message.begin(), message.end());
  // A failure shows again when the loop looks at the socket: the caller may be iterating over
  // links.
  loop_.change(key_, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
}

void Link::finish_sending() {
  finishing_ = true;
  loop_.change(key_, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
}

void Link::on_events(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0 && !write_some()) return;
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) read_some();
}

bool Link::write_some() {
  while (!outgoing_.empty()) {
    const ssize_t sent = ::send(fd_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (sent < 0) {
      close("sending failed: " + base::errno_text(errno));
      return false;
    }
    outgoing_.erase(outgoing_.begin(), outgoing_.begin() + sent);
  }
  if (finishing_ && !std::exchange(finished_, true)) ::shutdown(fd_.get(), SHUT_WR);
  loop_.change(key_, EPOLLIN | EPOLLRDHUP);
  return true;
}

bool Link::read_some() {
  std::array<std::byte, 4096> buffer;
  const ssize_t bytes = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
  if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
  if (bytes < 0) {
    close(base::errno_text(errno));
    return false;
  }
  if (bytes == 0) {
    close("the other side closed it");
    return false;
  }
  incoming_.insert(incoming_.end(), buffer.begin(), buffer.begin() + bytes);
  return handle_messages();
}

bool Link::handle_messages() {
  std::size_t at = 0;
  while (incoming_.size() - at >= kLengthBytes) {
    const auto length = decode_length(
        std::span<const std::byte, kLengthBytes>(incoming_.data() + at, kLengthBytes));
    if (!length) {
      close("it carried a message of a length that is not allowed");
      return false;
    }
    if (incoming_.size() - at < kLengthBytes + *length) break;
    const auto message = decode(std::span(incoming_).subspan(at + kLengthBytes, *length));
    if (!message) {
      close("it carried bytes that are no message");
      return false;
    }
    events_.message(*message);
    at += kLengthBytes + *length;
  }
  incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(at));
  return true;
}

void Link::close(const std::string& reason) {
  loop_.remove(key_);
  const auto closed = events_.closed;  // the handler may destroy this link
  closed(reason);
}

}  // namespace allrail::transport::control
