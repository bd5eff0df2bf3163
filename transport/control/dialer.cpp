#include "transport/control/dialer.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include <sys/epoll.h>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"

namespace allrail::transport::control {
namespace {

constexpr std::int64_t kConnectNs = 500'000'000;
/// The process that accepts may be stopped; another address would not help then, but a path that
/// was cut in the middle of the handshake would hold us for ever.
constexpr std::int64_t kHandshakeNs = 5'000'000'000;

}  // namespace

std::vector<DialAttempt> dial_order(const std::vector<RailPlace>& from,
                                    const std::vector<Endpoint>& to) {
  std::vector<DialAttempt> attempts;
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::vector<std::size_t> near;
    for (std::size_t k = 0; k < from.size(); ++k) {
      if (in_same_subnet(to[i], from[k].address, from[k].prefix_bits)) near.push_back(k);
    }
    if (!near.empty()) attempts.push_back({near[i % near.size()], i});
    for (std::size_t k = 0; near.empty() && k < from.size(); ++k) {
      attempts.push_back({(i + k) % from.size(), i});
    }
  }
  // What is likely comes first: an attempt that nobody answers costs half a second.
  std::stable_partition(attempts.begin(), attempts.end(), [&](const DialAttempt& one) {
    return one.from == one.to % from.size() ||
           in_same_subnet(to[one.to], from[one.from].address, from[one.from].prefix_bits);
  });
  return attempts;
}

/// Who listens on an address that both hosts have, such as that of a bridge of containers, is this
/// host. Its word counts only where the peer may be on it.
bool Dialer::tells_of_peer(const Endpoint& to) const {
  const auto is_mine = [this](const Endpoint& one) {
    return std::ranges::any_of(plan_.from, [&one](const RailPlace& place) {
      return place.address.is_ipv6 == one.is_ipv6 && place.address.address == one.address;
    });
  };
  return !is_mine(to) || std::ranges::all_of(plan_.to, is_mine);
}

Dialer::Dialer(EventLoop& loop, const DialPlan& plan, Events events)
    : loop_(loop),
      plan_(plan),
      events_(std::move(events)),
      attempts_(dial_order(plan.from, plan.to)) {
  // The first attempt starts with tick(): a handler must not run inside the constructor.
}

Dialer::~Dialer() { loop_.remove(key_); }

void Dialer::tick(std::int64_t now_ns) {
  if (!fd_) {
    try_next();
  } else if (now_ns >= deadline_ns_) {
    if (handshake_) events_.unanswered();
    attempt_failed(handshake_ ? "no answer to the handshake" : "no answer");
  }
}

void Dialer::try_next() {
  while (next_ < attempts_.size()) {
    const Endpoint& to = plan_.to[attempts_[next_].to];
    const RailPlace& from = plan_.from[attempts_[next_].from];
    ++next_;
    int error_number = 0;
    fd_ = start_connect(from.address, to, from.device, error_number);
    if (fd_) {
      deadline_ns_ = base::now_ns() + kConnectNs;
      key_ = loop_.add(fd_.get(), EPOLLIN | EPOLLOUT, [this](std::uint32_t) { on_events(); });
      return;
    }
    refused_ = refused_ || (error_number == ECONNREFUSED && tells_of_peer(to));
    reason_ = to.text() + ": " + base::refusal_text(error_number);
    if (error_number == EMFILE || error_number == ENFILE) {
      reason_ = "no socket could be made for " + reason_;
    }
  }
  // Copies, because the handler may destroy this dialer.
  const auto failed = events_.failed;
  const std::string reason = reason_;
  failed(refused_, reason);
}

void Dialer::attempt_failed(std::string reason) {
  loop_.remove(key_);
  handshake_.reset();
  fd_.reset();
  reason_ = plan_.to[attempts_[next_ - 1].to].text() + ": " + std::move(reason);
  try_next();
}

void Dialer::on_events() {
  if (!handshake_) {
    const int error_number = connect_error(fd_.get());
    if (error_number != 0) {
      const Endpoint& to = plan_.to[attempts_[next_ - 1].to];
      refused_ = refused_ || (error_number == ECONNREFUSED && tells_of_peer(to));
      attempt_failed(base::errno_text(error_number));
      return;
    }
    if (!plan_.probe) {
      handshake_ = std::make_unique<ClientHandshake>(plan_.identity, plan_.to_rank);
      deadline_ns_ = base::now_ns() + kHandshakeNs;
    }
  }
  if (handshake_) {
    const HandshakeState state = handshake_->step(fd_.get());
    if (state == HandshakeState::Failed) {
      attempt_failed(handshake_->failure_text());
      return;
    }
    if (state == HandshakeState::InProgress) {
      loop_.change(key_, handshake_->wants_write() ? EPOLLOUT : EPOLLIN);
      return;
    }
  }
  loop_.remove(key_);
  const auto reached = events_.reached;  // the handler may destroy this dialer
  reached(std::move(fd_));
}

}  // namespace allrail::transport::control
