#include "transport/tcp/coalescing.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace allrail::transport {
namespace {

void set_option(int fd, int name, int value) {
  // A connection works with and without: what fails here was closed and is reported elsewhere.
  (void)::setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value);
}

}  // namespace

void Coalescing::turn(int fd) {
  is_on_ = !is_on_;
  // Where Nagle's algorithm ends, the kernel sends what it held back.
  set_option(fd, TCP_NODELAY, is_on_ ? 0 : 1);
}

void acknowledge_segments(int fd) { set_option(fd, TCP_QUICKACK, 1); }

}  // namespace allrail::transport
