// A listener that hands out only connections whose handshake succeeded.
//
// A stranger costs at most 256 bytes, two seconds and one of 64 places; when all are taken, the
// oldest connection that has proved nothing makes room. Connections beyond that wait in the
// kernel.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "lib/base/handle.hpp"
#include "transport/tcp/handshake.hpp"
#include "transport/tcp/socket.hpp"

namespace allrail::transport {

/// A connection of a process of this job.
struct AcceptedConnection {
  base::UniqueFd fd;
  int peer_rank = -1;
  HandshakeExtra extra;
};

class Acceptor {
 public:
  static constexpr int kMaxPending = 64;

  /// Listens on `local` (port 0: chosen by the system). Throws as listen_on() does.
  Acceptor(const Endpoint& local, HandshakeIdentity identity,
           std::span<const std::byte> extra = {});

  /// The job's secret, where it becomes known only after the listener's address was published.
  /// Connections that came earlier wait in the system's queue until poll().
  void set_secret(const JobSecret& secret) { identity_.secret = secret; }

  /// Where peers connect to.
  const Endpoint& endpoint() const { return endpoint_; }
  /// Readable (epoll) when poll() has something to do, except for what only time brings: while
  /// needs_poll(), call poll() by wake_at_ns() or soon after it.
  int event_descriptor() const { return epoll_.get(); }
  /// Accepts, advances handshakes and drops what failed or is late; returns one finished
  /// connection, if any. Call it again until it returns nothing.
  std::optional<AcceptedConnection> poll();

  /// Handshakes may be late, or connections are left waiting for a while.
  bool needs_poll() const { return !pending_.empty() || resume_at_ns_ != 0; }
  /// Of the monotonic clock.
  std::int64_t wake_at_ns() const {
    return resume_at_ns_ != 0 ? resume_at_ns_ : base::now_ns() + 1'000'000'000;
  }
  int pending_count() const { return static_cast<int>(pending_.size()); }
  /// Connections that did not prove that they belong to this job.
  std::uint64_t stranger_count() const { return stranger_count_; }

 private:
  struct Pending {
    base::UniqueFd fd;
    ServerHandshake handshake;
    std::list<Pending>::iterator self{};
    std::uint32_t watched_events = 0;
    std::int64_t accepted_at_ns = base::now_ns();
    Pending(base::UniqueFd socket, const HandshakeIdentity& identity,
            std::span<const std::byte> extra)
        : fd(std::move(socket)), handshake(identity, extra) {}
  };
  using PendingList = std::list<Pending>;

  void accept_waiting();
  void listen(bool on);
  void watch(Pending& pending);
  void drop_late();
  PendingList::iterator victim();
  void make_place();
  void drop(PendingList::iterator pending, const std::string& reason);

  HandshakeIdentity identity_;
  HandshakeExtra extra_;
  base::UniqueFd listener_;
  base::UniqueFd epoll_;
  Endpoint endpoint_;
  PendingList pending_;            // oldest first
  std::int64_t resume_at_ns_ = 0;  // until then the listener is not looked at; 0: it is
  std::uint64_t stranger_count_ = 0;
  bool accept_failure_reported_ = false;
};

}  // namespace allrail::transport
