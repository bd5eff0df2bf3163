// How links of a TCP rail come and go.
#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "transport/tcp/tcp_rail_state.hpp"

namespace allrail::transport {
namespace {

constexpr std::int64_t kSilenceCheckIntervalNs = 1'000'000'000;
/// Bytes that the kernel takes beyond what it can send: a writable socket would otherwise swallow
/// megabytes, and rails would no longer pull.
constexpr int kUnsentBytes = 128 * 1024;
/// Reads per link that a send error grants, to get what the peer sent before it closed.
constexpr int kLastReads = 64;

}  // namespace

bool TcpRail::service(RailEvents& events) {
  service_now_ = false;
  bool any = false;
  bool acceptor_ready = false;
  std::array<epoll_event, 64> ready;
  const int count = ::epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    void* const source = ready[static_cast<std::size_t>(i)].data.ptr;
    if (source == &acceptor_) {
      acceptor_ready = true;
      continue;
    }
    if (source == &timer_) {
      std::uint64_t expirations = 0;
      (void)!::read(timer_.get(), &expirations, sizeof(expirations));
      continue;
    }
    // A link may have changed since the event: every branch is right for any state.
    TcpLink& link = *static_cast<TcpLink*>(source);
    if (link.state == TcpLink::State::Up) {
      any |= receive(link, events);
      if (link.state == TcpLink::State::Up && !link.stream->queue.empty()) flush(link);
    } else if (link.state != TcpLink::State::Waiting && link.state != TcpLink::State::Idle) {
      advance_connecting(link, events);
      any = true;
    }
  }
  if (acceptor_ready || acceptor_.needs_poll()) any |= take_accepted(events);
  const std::int64_t now_ns = base::now_ns();
  serviced_at_ns_ = now_ns;
  any |= try_waiting(now_ns, events);
  if (now_ns - silence_checked_at_ns_ > kSilenceCheckIntervalNs) {
    silence_checked_at_ns_ = now_ns;
    any |= check_silent_hosts(events);
  }
  return any;
}

bool TcpRail::take_accepted(RailEvents& events) {
  bool any = false;
  while (std::optional<AcceptedConnection> accepted = acceptor_.poll()) {
    // The lower rank connects; a higher one that does is confused, and is not listened to.
    if (accepted->peer_rank >= options_.rank) continue;
    const auto said = accepted->extra.bytes();
    if (said.size() != 1 || std::to_integer<int>(said[0]) >= kMaxRails) continue;
    const int peer_rail = std::to_integer<int>(said[0]);
    TcpLink& link = link_of(accepted->peer_rank);
    // What came early and was not looked at yet is older than this.
    if (link.wanted && link.early) {
      link.early.reset();
      --early_links_;
    }
    if (!link.wanted) {
      if (!link.early) ++early_links_;
      link.early = std::move(accepted->fd);
      link.early_rail = peer_rail;
      continue;
    }
    // The peer proved who it is, freshly: it has given up the connection that we still have.
    if (link.state == TcpLink::State::Up) {
      take_down(link, link.doom.empty() ? "the peer connected again" : link.doom, events);
    }
    link.remote_rail = peer_rail;
    if (link.wanted) go_up(link, std::move(accepted->fd), events);
    any = true;
  }
  return any;
}

bool TcpRail::try_waiting(std::int64_t now_ns, RailEvents& events) {
  bool any = false;
  for (std::size_t i = 0; i < connecting_.size(); ++i) {
    TcpLink& link = *connecting_[i];
    if (link.state == TcpLink::State::Handshaking || now_ns < link.next_try_ns) continue;
    if (link.state == TcpLink::State::Connecting) {
      connecting_failed(link, base::errno_text(ETIMEDOUT), events);
    } else if (link.state == TcpLink::State::Waiting) {
      start_connecting(link, now_ns, events);
    }
    any = true;
  }
  for (std::size_t i = 0; i < links_.size() && early_links_ != 0; ++i) {
    TcpLink& link = links_.at(i);
    if (!link.early || !link.wanted) continue;
    --early_links_;
    link.remote_rail = link.early_rail;
    go_up(link, std::move(link.early), events);
    any = true;
  }
  return any;
}

void TcpRail::start_connecting(TcpLink& link, std::int64_t now_ns, RailEvents& events) {
  int error_number = 0;
  link.fd = start_connect(place_.address, link.remote, place_.device, error_number);
  if (!link.fd) {
    connecting_failed(link, base::refusal_text(error_number), events);
    return;
  }
  link.state = TcpLink::State::Connecting;
  link.next_try_ns = now_ns + kProbeLimitNs;
  watch(link, EPOLLOUT, true);
}

void TcpRail::advance_connecting(TcpLink& link, RailEvents& events) {
  if (link.state == TcpLink::State::Connecting) {
    if (const int error_number = connect_error(link.fd.get())) {
      connecting_failed(link, base::errno_text(error_number), events);
      return;
    }
    const HandshakeIdentity identity{options_.secret, options_.job_hash, options_.rank,
                                     options_.size,   link.remote_rail,  Purpose::RailLink};
    const std::array<std::byte, 1> my_rail = {static_cast<std::byte>(index())};
    link.handshake = std::make_unique<ClientHandshake>(identity, link.peer, my_rail);
    link.state = TcpLink::State::Handshaking;
    // Somebody listens there. When the peer looks is its own affair.
    events.link_answered(index(), link.peer);
  }
  switch (link.handshake->step(link.fd.get())) {
    case HandshakeState::InProgress:
      watch(link, link.handshake->wants_write() ? EPOLLOUT : EPOLLIN, false);
      break;
    case HandshakeState::Failed:
      connecting_failed(link, link.handshake->failure_text(), events);
      break;
    case HandshakeState::Done:
      link.handshake.reset();
      (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link.fd.get(), nullptr);
      go_up(link, std::move(link.fd), events);
      break;
  }
}

void TcpRail::connecting_failed(TcpLink& link, const std::string& reason, RailEvents& events) {
  const std::string text = fmt::format("cannot connect to {} from {}: {}", link.remote.text(),
                                       place_.address.address_text(), reason);
  close_socket(link);
  wait_for_retry(link);
  base::log_debug("rail {}, rank {}: {}", name(), link.peer, text);
  events.link_down(index(), link.peer, text);
}

void TcpRail::wait_for_retry(TcpLink& link) {
  if (options_.rank > link.peer) return;
  link.state = TcpLink::State::Waiting;
  link.next_try_ns = base::now_ns() + retry_delay_.next_ns(link.retry_delay_ms);
  if (std::find(connecting_.begin(), connecting_.end(), &link) == connecting_.end()) {
    connecting_.push_back(&link);
  }
}

void TcpRail::go_up(TcpLink& link, base::UniqueFd fd, RailEvents& events) {
  std::erase(connecting_, &link);
  if (!link.stream) link.stream = std::make_unique<Stream>();
  link.stream->reset();
  link.fd = std::move(fd);
  link.state = TcpLink::State::Up;
  link.retry_delay_ms = 0;
  up_.push_back(&link);
  set_socket_option(link.fd.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
  watch(link, EPOLLIN, true);
  events.link_up(index(), link.peer, link.remote_rail);
}

void TcpRail::close_socket(TcpLink& link) {
  ++link.generation;
  if (link.state == TcpLink::State::Up) {
    std::erase(up_, &link);
    if (!link.stream->queue.empty()) --queued_links_;
    if (link.stream->chunks_untold() != 0) --untold_links_;
    if (!link.doom.empty()) --doomed_links_;
    link.stream->reset();
    link.doom.clear();
    (void)::shutdown(link.fd.get(), SHUT_RDWR);
  }
  link.state = TcpLink::State::Idle;
  link.handshake.reset();
  link.fd.reset();
}

void TcpRail::take_down(TcpLink& link, std::string_view reason, RailEvents& events) {
  const std::string text(reason);  // may be part of the link
  close_socket(link);
  if (link.wanted) wait_for_retry(link);
  events.link_down(index(), link.peer, text);
}

void TcpRail::doom(TcpLink& link, std::string reason) {
  if (!link.doom.empty()) return;
  link.doom = std::move(reason);
  ++doomed_links_;
}

bool TcpRail::report_doomed(RailEvents& events) {
  for (std::size_t i = 0; i < up_.size() && doomed_links_ != 0;) {
    TcpLink& link = *up_[i];
    if (link.doom.empty()) {
      ++i;
      continue;
    }
    // What the peer sent before it closed is still there, its last words among it.
    const std::uint32_t generation = link.generation;
    for (int k = 0; k < kLastReads && link.generation == generation; ++k) {
      if (!receive(link, events)) break;
    }
    if (link.generation == generation) take_down(link, link.doom, events);
    // The list has changed under us.
    i = 0;
  }
  return true;
}

/// Also where nothing of the fabric's is under way: questions and answers may be, of which only the
/// kernel knows, and a rank that only receives sends nothing else.
bool TcpRail::check_silent_hosts(RailEvents& events) {
  // Not before it is needed: this is looked at every second, and allocates nothing.
  const auto reason = [] {
    return fmt::format("its host has not answered for {} s", kSilenceLimitSeconds);
  };
  bool any = false;
  for (std::size_t i = 0; i < up_.size();) {
    TcpLink& link = *up_[i];
    if (!host_is_silent(link.fd.get())) {
      ++i;
      continue;
    }
    take_down(link, reason(), events);
    any = true;
  }
  for (TcpLink* const link : connecting_) {
    // Its process may take its time, its kernel may not.
    if (link->state != TcpLink::State::Handshaking || !host_is_silent(link->fd.get())) continue;
    connecting_failed(*link, reason(), events);
    any = true;
  }
  return any;
}

void TcpRail::watch(TcpLink& link, std::uint32_t wanted_events, bool is_new) {
  epoll_event event{};
  event.events = wanted_events;
  event.data.ptr = &link;
  if (::epoll_ctl(epoll_.get(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, link.fd.get(), &event) !=
      0) {
    base::log_warning("rail {}: cannot watch the connection to rank {}: {}", name(), link.peer,
                      base::errno_text(errno));
  }
}

}  // namespace allrail::transport
