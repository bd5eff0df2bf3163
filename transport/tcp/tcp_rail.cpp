#include "transport/tcp/tcp_rail.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "transport/tcp/buffer.hpp"
#include "transport/tcp/tcp_rail_state.hpp"

namespace allrail::transport {
namespace {

// The address of a rail: format, number of the rail, two zero bytes, the endpoint.
constexpr std::byte kAddressFormat{1};
constexpr std::size_t kAddressBytes = 4 + kEndpointBytes;

HandshakeIdentity identity_of(const TcpRailOptions& options, int rail) {
  return {options.secret, options.job_hash, options.rank, options.size, rail, Purpose::RailLink};
}

}  // namespace

std::unique_ptr<Rail> make_tcp_rail(const TcpRailOptions& options) {
  return std::make_unique<TcpRail>(options, resolve_rail_item(options.item));
}

std::uint64_t tcp_rail_stranger_count(const Rail& rail) {
  return static_cast<const TcpRail&>(rail).stranger_count();
}

TcpRail::TcpRail(const TcpRailOptions& options, const RailPlace& place)
    : options_(options),
      place_(place),
      epoll_(base::check_minus_one(::epoll_create1(EPOLL_CLOEXEC), "cannot make an epoll set")),
      timer_(base::check_minus_one(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC),
                                   "cannot make a timer")),
      acceptor_(place.address, identity_of(options, options.index)),
      retry_delay_(options.job_hash ^ (static_cast<std::uint64_t>(options.rank) << 32)),
      buffer_(std::make_unique<std::byte[]>(kBufferBytes)) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &acceptor_;
  base::check_minus_one(
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, acceptor_.event_descriptor(), &event),
      "cannot watch the listener of a rail");
  event.data.ptr = &timer_;
  base::check_minus_one(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &event),
                        "cannot watch the timer of a rail");
}

TcpRail::~TcpRail() {
  // What is still queued stays unsent: its memory may be gone. Whoever needs it sent asks
  // flushed().
  for (TcpLink* link : up_) {
    (void)::shutdown(link->fd.get(), SHUT_WR);
    // Closing with unread bytes would send a reset, which destroys what the peer has yet to get.
    for (int i = 0; i < 64; ++i) {
      if (::recv(link->fd.get(), buffer_.get(), kBufferBytes, MSG_DONTWAIT) <= 0) break;
    }
  }
}

std::vector<std::byte> TcpRail::address() const {
  const auto endpoint = encode_endpoint(acceptor_.endpoint());
  std::vector<std::byte> bytes(kAddressBytes);
  bytes[0] = kAddressFormat;
  bytes[1] = static_cast<std::byte>(options_.index);
  std::copy(endpoint.begin(), endpoint.end(), bytes.begin() + 4);
  return bytes;
}

void TcpRail::set_primary_window(std::span<std::byte> memory) { windows_.set_primary(memory); }

RemoteKey TcpRail::register_window(std::span<std::byte> memory) { return windows_.add(memory); }

void TcpRail::unregister_window(const RemoteKey& key) {
  const std::span<std::byte> memory = windows_.remove(key);
  for (TcpLink* link : up_) {
    const std::span<std::byte> target = link->stream->reader.payload_target();
    if (target.empty() || target.data() < memory.data() ||
        target.data() >= memory.data() + memory.size()) {
      continue;
    }
    link->stream->reader.discard_payload();
    doom(*link, "was writing into a window when it was unregistered");
  }
}

TcpLink* TcpRail::find(int peer) const { return links_.find(peer); }

TcpLink& TcpRail::link_of(int peer) {
  TcpLink& link = links_.make(peer);
  link.peer = peer;
  return link;
}

void TcpRail::connect(int peer, std::span<const std::byte> address) {
  if (peer < 0 || peer >= options_.size || peer == options_.rank) {
    base::fail_with_peer(Code::Internal, peer, "rail {}: there is no peer {}", name(), peer);
  }
  const auto endpoint = address.size() == kAddressBytes && address[0] == kAddressFormat
                            ? decode_endpoint(address.subspan(4))
                            : std::nullopt;
  if (!endpoint || endpoint->is_ipv6 != place_.address.is_ipv6) {
    base::fail_with_peer(Code::BadConfiguration, peer,
                         "rail {} cannot reach rank {}: its rail has no {} address; name rails of "
                         "the same kind on all hosts (ALLRAIL_RAILS)",
                         name(), peer, place_.address.is_ipv6 ? "IPv6" : "IPv4");
  }
  TcpLink& link = link_of(peer);
  const bool connects = options_.rank < peer;
  const bool is_another = connects && link.remote != *endpoint;
  if (connects) {
    link.remote = *endpoint;
    link.remote_rail = std::to_integer<int>(address[1]);
  }
  const bool was_wanted = std::exchange(link.wanted, true);
  if (was_wanted && !(is_another && link.is_connecting())) return;
  service_now_ = true;
  if (!connects) return;
  close_socket(link);
  link.state = TcpLink::State::Waiting;
  link.next_try_ns = 0;
  if (was_wanted) return;
  link.retry_delay_ms = 0;
  connecting_.push_back(&link);
}

void TcpRail::forget(int peer) {
  TcpLink* link = find(peer);
  if (link == nullptr) return;
  link->wanted = false;
  if (link->early) --early_links_;
  link->early.reset();
  close_socket(*link);
  std::erase(connecting_, link);
}

bool TcpRail::is_up(int peer) const {
  const TcpLink* link = find(peer);
  return link != nullptr && link->is_up();
}

void TcpRail::close(int peer, RailEvents& /*events*/) {
  TcpLink* link = find(peer);
  if (link == nullptr || link->state == TcpLink::State::Idle) return;
  // The fence asks what arrived, and an answer is final: what lies in this kernel, behind an
  // outage, may not be delivered to a peer whose end has not come up yet. So nothing is sent after
  // this.
  constexpr linger kForget{1, 0};
  (void)::setsockopt(link->fd.get(), SOL_SOCKET, SO_LINGER, &kForget, sizeof(kForget));
  close_socket(*link);
  if (link->wanted) wait_for_retry(*link);
}

void TcpRail::prepare_sleep() {
  service_now_ = true;
  const std::int64_t now_ns = base::now_ns();
  std::int64_t wake_ns = std::numeric_limits<std::int64_t>::max();
  if (doomed_links_ != 0) wake_ns = now_ns;
  for (const TcpLink* link : connecting_) {
    if (link->state != TcpLink::State::Handshaking) wake_ns = std::min(wake_ns, link->next_try_ns);
  }
  if (acceptor_.needs_poll()) wake_ns = std::min(wake_ns, acceptor_.wake_at_ns());
  for (TcpLink* link : up_) {
    Stream& stream = *link->stream;
    if (!stream.queue.empty() && !stream.wants_writable) {
      stream.wants_writable = true;
      watch(*link, EPOLLIN | EPOLLOUT, false);
    }
    if (stream.in_flight() != 0) wake_ns = std::min(wake_ns, now_ns + 1'000'000'000);
  }
  // An earlier timer only wakes the sleeper too soon, which is cheaper than setting it each time.
  if (wake_ns != std::numeric_limits<std::int64_t>::max() &&
      (timer_at_ns_ <= now_ns || timer_at_ns_ > wake_ns)) {
    set_timer(std::max(wake_ns, now_ns + 1));
  }
}

void TcpRail::set_timer(std::int64_t at_ns) {
  itimerspec when{};
  when.it_value.tv_sec = at_ns / 1'000'000'000;
  when.it_value.tv_nsec = at_ns % 1'000'000'000;
  if (::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr) == 0) timer_at_ns_ = at_ns;
}

}  // namespace allrail::transport
