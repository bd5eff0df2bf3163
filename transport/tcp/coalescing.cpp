#include "transport/tcp/coalescing.hpp"

#include <utility>

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include "lib/base/clock.hpp"
#include "transport/tcp/socket.hpp"

namespace allrail::transport {
namespace {

/// What a sender needs for some calls more, and hardly more than a round trip of most networks.
constexpr std::int64_t kWithheldNs = 25'000;
/// Of TCP_QUICKACK: an even number acknowledges what there is, if anything, and leaves it at that.
constexpr int kNowAndNotLater = 2;

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

void SegmentAcknowledgements::note_read(int fd, bool peer_coalesces) {
  if (!peer_coalesces) {
    withheld_since_ns_ = 0;
    // The kernel goes by its own rules again, and acknowledges what there is.
    if (std::exchange(is_on_, false)) set_socket_option(fd, IPPROTO_TCP, TCP_QUICKACK, 1);
    return;
  }
  is_on_ = true;
  if (withheld_since_ns_ != 0) return;
  withheld_since_ns_ = base::now_ns();
  // Again after every acknowledgement: the kernel may have gone by its own rules since.
  set_socket_option(fd, IPPROTO_TCP, TCP_QUICKACK, 0);
}

void SegmentAcknowledgements::note_wait(int fd) {
  if (base::now_ns() - withheld_since_ns_ > kWithheldNs) send(fd);
}

void SegmentAcknowledgements::send(int fd) {
  withheld_since_ns_ = 0;
  set_socket_option(fd, IPPROTO_TCP, TCP_QUICKACK, kNowAndNotLater);
}

}  // namespace allrail::transport
