#include "transport/tcp/coalescing.hpp"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace allrail::transport {
namespace {

void set_option(int fd, int name, int value) {
  // A connection works with and without: what fails here was closed and is reported elsewhere.
  (void)::setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value);
}

/// Whether the kernel has bytes that it did not send yet, such as behind a slow rail.
bool has_unsent_bytes(int fd) {
  int bytes = 0;
  return ::ioctl(fd, SIOCOUTQNSD, &bytes) != 0 || bytes != 0;
}

}  // namespace

void Coalescing::turn(int fd) {
  has_to_leave_ = false;
  if (!is_on_) {
    // What was to be sent at once would wait, and whoever gets it does not know: at the next frame.
    if (has_unsent_bytes(fd)) return;
    is_on_ = true;
  } else {
    is_on_ = false;
  }
  // Where Nagle's algorithm ends, the kernel sends what it held back.
  set_option(fd, TCP_NODELAY, is_on_ ? 0 : 1);
}

void acknowledge_segments(int fd) { set_option(fd, TCP_QUICKACK, 1); }

}  // namespace allrail::transport
