#include "transport/tcp/acceptor.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <sys/epoll.h>

#include "lib/base/error.hpp"
#include "lib/base/log.hpp"

namespace allrail::transport {
namespace {

/// Connections taken from the kernel's queue per poll(), so that a flood cannot hold up the caller.
constexpr int kMaxAcceptsPerPoll = 16;
/// How long a connection has its place for sure, even when all are taken.
constexpr std::int64_t kStrangerTurnMs = 50;
constexpr std::int64_t kMemberTurnMs = 2'000;
/// How long connections wait in the kernel's queue where one could not be taken. A listener that
/// stays readable would wake a sleeper without end.
constexpr std::int64_t kPauseMs = 50;

std::string remote_text(int fd) {
  const std::optional<Endpoint> remote = remote_endpoint(fd);
  return remote ? remote->address_text() : "an unknown address";
}

}  // namespace

Acceptor::Acceptor(const Endpoint& local, HandshakeIdentity identity,
                   std::span<const std::byte> extra)
    : identity_(std::move(identity)),
      extra_(extra),
      listener_(listen_on(local)),
      epoll_(base::check_minus_one(::epoll_create1(EPOLL_CLOEXEC), "cannot make an epoll set")) {
  const std::optional<Endpoint> bound = local_endpoint(listener_.get());
  if (!bound) base::fail(Code::ResourceLimit, "cannot read the port of a listening TCP socket");
  endpoint_ = *bound;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  base::check_minus_one(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event),
                        "cannot watch a listening TCP socket");
}

std::optional<AcceptedConnection> Acceptor::poll() {
  std::array<epoll_event, 16> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  bool listener_ready = false;
  std::optional<AcceptedConnection> finished;
  if (resume_at_ns_ != 0 && base::now_ns() >= resume_at_ns_) listen(true);
  for (int i = 0; i < count && !finished; ++i) {
    if (events[static_cast<std::size_t>(i)].data.ptr == nullptr) {
      listener_ready = true;
      continue;
    }
    // Only this loop and what follows it removes entries, and each is reported once per call.
    auto* ready = static_cast<Pending*>(events[static_cast<std::size_t>(i)].data.ptr);
    const HandshakeState state = ready->handshake.step(ready->fd.get());
    if (state == HandshakeState::Done) {
      (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, ready->fd.get(), nullptr);
      finished.emplace();
      finished->fd = std::move(ready->fd);
      finished->peer_rank = ready->handshake.peer_rank();
      finished->extra = HandshakeExtra(ready->handshake.peer_extra());
      pending_.erase(ready->self);
    } else if (state == HandshakeState::Failed) {
      drop(ready->self, ready->handshake.failure_text());
    } else {
      watch(*ready);
    }
  }
  // After the handshakes had their step: what arrived while nobody polled is not late.
  if (!finished) drop_late();
  if (listener_ready) accept_waiting();
  return finished;
}

void Acceptor::listen(bool on) {
  resume_at_ns_ = on ? 0 : base::now_ns() + kPauseMs * 1'000'000;
  epoll_event event{};
  if (on) event.events = EPOLLIN;
  event.data.ptr = nullptr;
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
}

void Acceptor::watch(Pending& pending) {
  const std::uint32_t wanted = pending.handshake.wants_write() ? EPOLLOUT : EPOLLIN;
  if (pending.watched_events == wanted) return;
  epoll_event event{};
  event.events = wanted;
  event.data.ptr = &pending;
  const int operation = pending.watched_events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (::epoll_ctl(epoll_.get(), operation, pending.fd.get(), &event) == 0) {
    pending.watched_events = wanted;
  }
}

void Acceptor::drop_late() {
  for (auto pending = pending_.begin(); pending != pending_.end();) {
    const auto current = pending++;
    if (current->handshake.deadline_passed()) drop(current, "it was too slow");
  }
}

void Acceptor::accept_waiting() {
  for (int i = 0; i < kMaxAcceptsPerPoll; ++i) {
    const bool is_full = pending_count() >= kMaxPending;
    if (is_full && victim() == pending_.end()) {
      listen(false);
      return;
    }
    int error_number = 0;
    base::UniqueFd fd = accept_next(listener_.get(), error_number);
    if (!fd) {
      if (error_number == EAGAIN) return;
      // Out of descriptors or memory: a place is freed, so that the queue moves on some day.
      make_place();
      listen(false);
      if (!std::exchange(accept_failure_reported_, true)) {
        base::log_warning("cannot accept a connection on {}: {}", endpoint_.text(),
                          base::refusal_text(error_number));
      }
      return;
    }
    if (is_full) make_place();
    Pending& pending = pending_.emplace_back(std::move(fd), identity_, extra_.bytes());
    pending.self = std::prev(pending_.end());
    // The hello of a member is usually there already, and keeps its place.
    const HandshakeState state = pending.handshake.step(pending.fd.get());
    if (state == HandshakeState::Failed) {
      drop(pending.self, pending.handshake.failure_text());
    } else if (state == HandshakeState::Done) {
      epoll_event event{};
      event.events = EPOLLOUT;
      event.data.ptr = &pending;
      (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, pending.fd.get(), &event);
    } else {
      watch(pending);
    }
  }
}

Acceptor::PendingList::iterator Acceptor::victim() {
  const auto is_victim = [](const Pending& pending) {
    // Members of the job (or who replays one) have their turn: a large job connects all at once.
    const std::int64_t turn_ms =
        pending.handshake.hello_accepted() ? kMemberTurnMs : kStrangerTurnMs;
    return base::now_ns() - pending.accepted_at_ns >= turn_ms * 1'000'000;
  };
  const auto unproven = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& one) {
    return !one.handshake.hello_accepted() && is_victim(one);
  });
  return unproven != pending_.end() ? unproven
                                    : std::find_if(pending_.begin(), pending_.end(), is_victim);
}

void Acceptor::make_place() {
  const auto oldest = victim();
  if (oldest != pending_.end()) drop(oldest, "too many connections were waiting");
}

void Acceptor::drop(PendingList::iterator pending, const std::string& reason) {
  const std::string address = remote_text(pending->fd.get());
  ++stranger_count_;
  if (stranger_count_ == 1) {
    base::log_warning(
        "a connection from {} did not prove that it belongs to this job; closed ({}); "
        "further ones are counted, not logged",
        address, reason);
  }
  pending_.erase(pending);
}

}  // namespace allrail::transport
