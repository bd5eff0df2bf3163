// How chunks move over the links of a TCP rail. Nothing here allocates while links are well.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "transport/tcp/buffer.hpp"
#include "transport/tcp/tcp_rail_state.hpp"

namespace allrail::transport {
namespace {

/// Up to here one copy is cheaper than a second piece in the system call.
constexpr std::size_t kInlineBytes = 1024;
/// Frames that one system call sends.
constexpr std::size_t kFramesPerSend = 32;
/// Reads per link and poll(), so that one busy link does not starve the others.
constexpr int kReadsPerPoll = 8;
/// With more links than this, one epoll_wait() is cheaper than asking every socket.
constexpr std::size_t kDirectLinks = 2;
/// How often poll() looks after everything that is not data.
constexpr std::int64_t kServiceIntervalNs = 1'000'000;
constexpr int kPollsPerClock = 8;

}  // namespace

/// Connects the reader of one link to the rail and its events.
class TcpRail::Receiver final : public FrameSink {
 public:
  Receiver(TcpRail& rail, TcpLink& link, RailEvents& events)
      : rail_(rail), link_(link), events_(events), generation_(link.generation) {}

  bool is_open() const override { return link_.generation == generation_; }

  const char* acknowledged(std::uint32_t received) override {
    Stream& stream = *link_.stream;
    const std::uint32_t count = received - stream.chunks_completed;
    if (count == 0) return nullptr;
    if (count > stream.chunks_sent - stream.chunks_completed) {
      return "acknowledged chunks that were not sent";
    }
    stream.chunks_completed = received;
    events_.chunks_completed(rail_.index(), link_.peer, static_cast<int>(count));
    return nullptr;
  }

  Target chunk_begins(const FrameHeader& header) override {
    Target target = rail_.windows_.find(header);
    if (target.violation == nullptr &&
        !events_.chunk_wanted(rail_.index(), link_.peer, header.immediate)) {
      target.to = nullptr;
    }
    return target;
  }

  void chunk_ends(const FrameHeader& header, bool written) override {
    Stream& stream = *link_.stream;
    rail_.note_chunk(stream, header);
    stream.last_chunk_bytes = header.bytes;
    if (written) {
      events_.chunk_arrived(rail_.index(), link_.peer, header.immediate, header.bytes);
    }
  }

  void control(std::span<const std::byte> message) override {
    events_.control_arrived(rail_.index(), link_.peer, message);
  }

 private:
  TcpRail& rail_;
  TcpLink& link_;
  RailEvents& events_;
  const std::uint32_t generation_;
};

bool TcpRail::post(int peer, const Chunk& chunk) {
  TcpLink* link = find(peer);
  if (link == nullptr || !link->is_up()) return false;
  Stream& stream = *link->stream;
  if (stream.in_flight() >= kTcpQueueDepth || chunk.bytes > kTcpMaxChunkBytes) return false;
  FrameHeader header;
  header.type = FrameType::Chunk;
  header.primary = chunk.primary ? 1 : 0;
  header.bulk = chunk.bulk ? 1 : 0;
  header.bytes = chunk.bytes;
  header.immediate = chunk.immediate;
  header.window = chunk.primary ? 0 : chunk.window.address;
  header.key = chunk.primary ? 0 : chunk.window.key;
  header.offset = chunk.offset;
  ++stream.chunks_posted;
  return send_frame(*link, header, chunk.from, chunk.held);
}

bool TcpRail::post_control(int peer, std::span<const std::byte> message) {
  TcpLink* link = find(peer);
  if (link == nullptr || !link->is_up() || message.size() > kMaxControlBytes) return false;
  if (!link->stream->queue.has_control_room()) return false;
  FrameHeader header;
  header.type = FrameType::Control;
  header.bytes = static_cast<std::uint32_t>(message.size());
  return send_frame(*link, header, message.data());
}

bool TcpRail::send_frame(TcpLink& link, const FrameHeader& frame, const std::byte* payload,
                         bool held) {
  FrameHeader header = frame;
  header.received = link.stream->chunks_received;
  send_or_queue(link, header, payload, held);
  return true;
}

void TcpRail::send_or_queue(TcpLink& link, const FrameHeader& header, const std::byte* payload,
                            bool held) {
  Stream& stream = *link.stream;
  if (!stream.queue.empty()) {
    stream.queue.push(header, payload, 0);
    if (held) stream.unsubmitted = unsubmitted_ = true;
    return;
  }
  const std::size_t total_bytes = kFrameHeaderBytes + header.bytes;
  if (held || total_bytes > kInlineBytes) {
    // More may follow: together they cost one system call, and one segment that is not full.
    stream.queue.push(header, payload, 0);
    stream.unsubmitted = unsubmitted_ = true;
    ++queued_links_;
    return;
  }
  std::array<std::byte, kInlineBytes> bytes;
  std::memcpy(bytes.data(), &header, kFrameHeaderBytes);
  if (header.bytes != 0) std::memcpy(bytes.data() + kFrameHeaderBytes, payload, header.bytes);
  ssize_t sent = 0;
  do {
    sent = ::send(link.fd.get(), bytes.data(), total_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(total_bytes)) {
    if (header.type == FrameType::Chunk) ++stream.chunks_sent;
    told(stream, header);
    return;
  }
  if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
    send_failed(link, errno);
    return;  // the link goes down at the next poll()
  }
  stream.queue.push(header, payload, sent < 0 ? 0 : static_cast<std::size_t>(sent));
  ++queued_links_;
}

void TcpRail::submit() {
  if (!std::exchange(unsubmitted_, false)) return;
  for (TcpLink* link : up_) {
    if (link->stream->unsubmitted) flush(*link);
  }
}

void TcpRail::flush(TcpLink& link) {
  Stream& stream = *link.stream;
  stream.unsubmitted = false;
  if (stream.queue.empty() || !link.doom.empty()) return;
  for (;;) {
    std::array<iovec, 2 * kFramesPerSend> pieces;
    std::size_t piece_count = 0;
    std::size_t wanted_bytes = 0;
    const std::size_t frame_count = std::min(stream.queue.count(), kFramesPerSend);
    for (std::size_t i = 0; i < frame_count; ++i) {
      QueuedFrame& frame = stream.queue.at(i);
      if (frame.sent_bytes == 0) frame.header.received = stream.chunks_received;
      std::size_t skip = frame.sent_bytes;
      wanted_bytes += frame.total_bytes() - skip;
      if (skip < kFrameHeaderBytes) {
        pieces[piece_count++] = {reinterpret_cast<std::byte*>(&frame.header) + skip,
                                 kFrameHeaderBytes - skip};
        skip = 0;
      } else {
        skip -= kFrameHeaderBytes;
      }
      if (frame.header.bytes > skip) {
        pieces[piece_count++] = {const_cast<std::byte*>(frame.payload) + skip,
                                 frame.header.bytes - skip};
      }
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = piece_count;
    const ssize_t sent = ::sendmsg(link.fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) send_failed(link, errno);
      return;
    }
    advance_queue(stream, static_cast<std::size_t>(sent));
    if (stream.queue.empty()) {
      --queued_links_;
      if (std::exchange(stream.wants_writable, false)) watch(link, EPOLLIN, false);
      return;
    }
    if (static_cast<std::size_t>(sent) < wanted_bytes) return;  // the socket is full
  }
}

/// What the kernel has below TCP. What waits above for the peer to read, or for acknowledgements,
/// waits for processes and not for the rail.
std::int64_t TcpRail::unsent_bytes(int peer) const {
  const TcpLink* link = find(peer);
  if (link == nullptr || !link->is_up()) return -1;
  std::array<std::uint32_t, SK_MEMINFO_VARS> memory{};
  socklen_t length = sizeof memory;
  if (::getsockopt(link->fd.get(), SOL_SOCKET, SO_MEMINFO, memory.data(), &length) != 0) return -1;
  return memory[SK_MEMINFO_WMEM_ALLOC];
}

/// What the other kernel has not acknowledged.
std::int64_t TcpRail::undelivered_bytes(int peer) const {
  const TcpLink* link = find(peer);
  if (link == nullptr || !link->is_up()) return -1;
  int bytes = 0;
  if (::ioctl(link->fd.get(), SIOCOUTQ, &bytes) != 0) return -1;
  return bytes;
}

void TcpRail::advance_queue(Stream& stream, std::size_t sent_bytes) {
  while (sent_bytes != 0) {
    QueuedFrame& frame = stream.queue.at(0);
    const std::size_t count = std::min(sent_bytes, frame.total_bytes() - frame.sent_bytes);
    frame.sent_bytes += count;
    sent_bytes -= count;
    if (frame.sent_bytes != frame.total_bytes()) return;
    if (frame.header.type == FrameType::Chunk) ++stream.chunks_sent;
    told(stream, frame.header);
    stream.queue.pop();
  }
}

void TcpRail::send_failed(TcpLink& link, int error_number) {
  doom(link, fmt::format("the connection broke while sending: {}", base::errno_text(error_number)));
}

bool TcpRail::receive(TcpLink& link, RailEvents& events) {
  Stream& stream = *link.stream;
  FrameReader& reader = stream.reader;
  Receiver receiver(*this, link, events);
  std::byte* const front = buffer_.get() + kMaxRestBytes;
  bool any = false;
  for (int i = 0; i < kReadsPerPoll; ++i) {
    const std::span<std::byte> target = reader.payload_target();
    const std::size_t buffer_bytes =
        stream.last_chunk_bytes >= kLargeChunkBytes || target.size() >= kLargeChunkBytes
            ? kReadBytesWhenLarge
            : kReadBytes;
    ssize_t received = 0;
    if (target.empty()) {
      received = ::recv(link.fd.get(), front, buffer_bytes, MSG_DONTWAIT);
    } else {
      const std::array<iovec, 2> pieces = {{{target.data(), target.size()}, {front, buffer_bytes}}};
      received = ::readv(link.fd.get(), pieces.data(), static_cast<int>(pieces.size()));
    }
    if (received <= 0) {
      if (received < 0 && errno == EINTR) continue;
      if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      take_down(link,
                received == 0 ? "the peer closed the connection"
                              : fmt::format("the connection broke: {}", base::errno_text(errno)),
                events);
      return true;
    }
    any = true;
    const auto count = static_cast<std::size_t>(received);
    const std::size_t direct_bytes = std::min(count, target.size());
    FrameReader::Result result = FrameReader::Result::Continue;
    if (direct_bytes != 0) result = reader.payload_received(direct_bytes, receiver);
    if (result == FrameReader::Result::Continue && count > direct_bytes) {
      std::byte* const start = front - reader.rest_bytes();
      const std::size_t rest_bytes = reader.take_rest(start);
      result = reader.parse({start, rest_bytes + count - direct_bytes}, receiver);
    }
    if (result == FrameReader::Result::Closed) return true;
    if (result == FrameReader::Result::Violation) {
      take_down(link, fmt::format("the peer {}", reader.violation()), events);
      return true;
    }
    // Less than asked for: the socket is empty, and asking again would only cost a call.
    if (count < target.size() + buffer_bytes) break;
  }
  if (is_much_untold(stream)) send_acknowledgement(link);
  return any;
}

bool TcpRail::poll_peer(RailEvents& events, int peer) {
  TcpLink* const link = find(peer);
  if (link == nullptr || !link->is_up()) return poll(events);
  const bool any = receive(*link, events);
  if (link->is_up()) flush(*link);
  return any;
}

bool TcpRail::poll(RailEvents& events) {
  bool any = false;
  if (doomed_links_ != 0) any |= report_doomed(events);
  const bool by_epoll = up_.empty() || up_.size() > kDirectLinks;
  if (by_epoll || service_now_) {
    any |= service(events);
  } else if (--polls_until_clock_ <= 0) {
    polls_until_clock_ = kPollsPerClock;
    if (base::now_ns() - serviced_at_ns_ > kServiceIntervalNs) any |= service(events);
  }
  if (!by_epoll) {
    for (std::size_t i = 0; i < up_.size();) {
      TcpLink* const link = up_[i];
      any |= receive(*link, events);
      // A link that went down has left the list, and the next one has taken its place.
      if (i < up_.size() && up_[i] == link) ++i;
    }
  }
  if (queued_links_ != 0) {
    for (TcpLink* link : up_) flush(*link);
  }
  if (untold_links_ != 0) check_acknowledgements();
  return any;
}

}  // namespace allrail::transport
