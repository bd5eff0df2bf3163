#include "transport/tcp/coalescing.hpp"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include "transport/tcp/socket.hpp"

namespace allrail::transport {
namespace {

/// Whether the kernel has bytes that it did not send yet, such as behind a slow rail.
bool has_unsent_bytes(int fd) {
  int bytes = 0;
  return ::ioctl(fd, SIOCOUTQNSD, &bytes) != 0 || bytes != 0;
}

}  // namespace

void Coalescing::turn(int fd) {
  has_to_leave_ = false;
  // What was to be sent at once would wait, and whoever gets it does not know: at the next frame.
  if (!is_on_ && has_unsent_bytes(fd)) return;
  is_on_ = !is_on_;
  // Where Nagle's algorithm ends, the kernel sends what it held back.
  set_socket_option(fd, IPPROTO_TCP, TCP_NODELAY, is_on_ ? 0 : 1);
}

void acknowledge_segments(int fd) { set_socket_option(fd, IPPROTO_TCP, TCP_QUICKACK, 1); }

}  // namespace allrail::transport
