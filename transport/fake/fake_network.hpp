// Rails without a network: N ranks in one process under a seeded scheduler and a virtual clock.
//
// Chunks take time by rate, delay and jitter; links can be cut (chunks in flight are lost, or land
// late, after the sender was told that the link is down), freeze silently for a while, and come
// back. Everything that happens is a function of the seed and of the calls.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "transport/rail.hpp"

namespace allrail::transport {

struct FakeRailOptions {
  double bytes_per_second = 1e9;  // of everything that one rank sends on this rail
  std::int64_t delay_ns = 5'000;
  std::int64_t jitter_ns = 0;
  // What a chunk costs its sender's rail beside its bytes, and its receiver's rail then has one
  // chunk coming in at a time, as in the papers' model of a port. 0: neither.
  std::int64_t startup_ns = 0;
  std::int64_t saved_up_ns = 0;  // what it could have sent in so much idle time goes at once
  int queue_depth = 64;
  std::uint32_t max_chunk_bytes = 1U << 20;
  std::int64_t resend_after_ns = 0;  // what the rail says of itself; nothing is sent twice
  double duplicate_chance = 0;       // an arrival is reported twice
  // As tcp: the payload waits until the receiver polls and wants it. Otherwise as RDMA: it lands.
  bool reads_payload = false;
  // As tcp: the receiver acknowledges when it puts something itself, or is told to.
  bool holds_acknowledgements = false;
};

struct FakeCut {
  bool silent = false;                         // no chunk gets through, but no end is told
  std::int64_t longest_notice_ns = 1'000'000;  // each end sees link_down within this time
  double late_chance = 0.5;                    // that a chunk in flight lands after all
  std::int64_t latest_ns = 50'000'000;         // ... within this time
};

class FakeRail;

class FakeNetwork {
 public:
  FakeNetwork(std::uint64_t seed, int ranks, std::vector<FakeRailOptions> rails);
  ~FakeNetwork();

  /// At most once per rank and index. The network outlives its rails.
  std::unique_ptr<Rail> make_rail(int rank, int index);
  /// What FakeRail::address() says.
  static std::vector<std::byte> address_of(int rank, int index);
  /// Rails reach each other over one cable; at first, rail i is on cable i. Attempts to connect to
  /// another cable time out.
  void plug(int rank, int index, int cable);

  std::int64_t now_ns() const { return now_ns_; }
  /// Lets the next event happen, or `longest_ns` pass if none is due by then.
  void advance(std::int64_t longest_ns);
  /// Events that are still to come.
  std::size_t pending() const { return events_.size(); }

  void cut(int rail, int a, int b, const FakeCut& how) { cut({a, rail}, {b, rail}, how); }
  struct Port {
    int rank = 0;
    int rail = 0;
  };
  void cut(Port one, Port other, const FakeCut& how);
  /// New links can be made again.
  void heal(int rail, int a, int b) { heal({a, rail}, {b, rail}); }
  void heal(Port one, Port other);
  /// Nothing travels from `from` to `to` for this long; nothing is lost.
  void freeze(int rail, int from, int to, std::int64_t duration_ns) {
    freeze({from, rail}, {to, rail}, duration_ns);
  }
  void freeze(Port from, Port to, std::int64_t duration_ns);
  /// What a rail of this rank has had in flight to one peer.
  struct Use {
    std::uint64_t most_bytes = 0;
    std::int64_t longest_ns = 0;  // from posting a chunk to its completion
    std::uint64_t bulk_chunks = 0;
    std::uint64_t held_chunks = 0;
    std::uint64_t batches = 0;  // of held chunks that left together
  };
  Use use(Port from, Port to) { return link(from, to).ends[from.rank < to.rank ? 0 : 1].use; }
  /// Nothing was posted to a rail of this rank without a submit() or poll() after it.
  bool all_submitted(int rank) const;

 private:
  friend class FakeRail;

  struct End {
    bool wanted = false;  // of the connecting end: this is the link that it wants
    bool up = false;
    std::uint64_t generation = 0;  // of the link that is up here
    struct Posted {
      std::uint32_t bytes = 0;
      std::int64_t time_ns = 0;
    };
    std::deque<Posted> in_flight;
    std::vector<Chunk> held;  // the last of those in flight, which have not left
    std::uint64_t in_flight_bytes = 0;
    Use use;
    std::int64_t last_arrival_ns = 0;  // at the other end: a link keeps its order
    std::int64_t frozen_until_ns = 0;  // what this end sends
  };
  struct Link {
    Port ports[2];  // of the lower rank, of the higher
    End ends[2];
    std::uint64_t generation = 0;
    bool cut = false;     // no new link can be made
    bool broken = false;  // the present generation carries nothing any more
    FakeCut how;
    bool attempt_pending = false;
    std::int64_t backoff_ns = 0;
  };
  struct Event {
    std::int64_t time_ns;
    std::uint64_t order;
    std::function<void()> run;
    bool operator<(const Event& other) const {
      return std::tie(other.time_ns, other.order) < std::tie(time_ns, order);
    }
  };
  struct Parcel;  // a chunk under way

  Link& link(Port one, Port other);
  FakeRail* rail(Port port) const;
  const FakeRailOptions& options_of(const Link& link, int side) const {
    return options_[static_cast<std::size_t>(link.ports[side].rail)];
  }
  bool reaches(const Link& link) const;
  /// The higher rank's rail wants to be connected to: whoever waited for it tries again.
  void attempt_all(Port to, int from_rank);
  void at(std::int64_t time_ns, std::function<void()> run);
  std::int64_t random(std::int64_t limit);
  bool chance(double probability);

  void attempt_later(Link& link, std::int64_t delay_ns);
  void attempt(Link& link);
  void end_down(Link& link, int side, const std::string& reason, bool report);
  void notice(Link& link, int side, std::uint64_t generation, const std::string& reason);
  bool post(Link& link, int side, const Chunk& chunk);
  void hand_over(Link& link, int side);
  void send(Link& link, int side, const Chunk& chunk);
  void deliver(Link& link, int side, const std::shared_ptr<Parcel>& parcel);
  void land(Link& link, int side, const std::shared_ptr<Parcel>& parcel);
  bool post_control(Link& link, int side, std::span<const std::byte> message);
  void deliver_control(Link& link, int side, std::uint64_t generation,
                       std::vector<std::byte> message);
  void acknowledge(Link& link, int side, std::uint64_t generation);

  int ranks_;
  std::vector<FakeRailOptions> options_;
  std::mt19937_64 engine_;
  std::int64_t now_ns_ = 1'000'000'000;
  std::uint64_t next_order_ = 0;
  std::priority_queue<Event> events_;
  std::map<std::tuple<int, int, int, int>, std::unique_ptr<Link>> links_;
  std::vector<int> cables_;       // by rank, then index
  std::vector<FakeRail*> rails_;  // by rank, then index
};

}  // namespace allrail::transport
