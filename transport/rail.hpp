// The contract of a rail: one network port of this process, with links to one rail of each peer.
//
// Bytes cross a rail in one way only: a chunk of a notified put. The rail writes the chunk into a
// window of the peer and the peer's rail reports its 32-bit immediate once every byte of it can be
// read. A rail neither cuts, nor orders, nor repeats: striping, arrival, room, fence and replay
// live in the fabric, once for all rails (transport/fabric.hpp).
//
// What every rail must keep (tests/conformance states it as tests):
//  - post() never blocks. At most `queue_depth` chunks per link are in flight; the fabric counts.
//  - What post() and post_control() accepted may lie in the rail until submit(), so that a device
//    is rung once for all of it. The fabric calls submit() before any of its functions returns,
//    but for chunks that are `held`; poll() does so, too. What lies there when its link goes down
//    or is closed is dropped; it counts as in flight like the rest.
//  - Every chunk accepted on a link generation ends once: it is counted by chunks_completed(), in
//    the order of posting, or the link goes down, after which it may or may not have landed.
//  - chunk_arrived() is reported after all bytes of the chunk are readable, once per posted chunk.
//    Rails do not order among each other. A link may be reported down at any time.
//  - After close(peer) returns, nothing that the peer posted on that link generation lands any
//    more and no event of that generation is reported, link_down() neither. The same holds from
//    link_down() on: the rail has closed its end by itself. close() is not called from events.
//  - What the sender may count as delivered is reported: both close() and the rail, before it
//    reports link_down(), first report every chunk that has landed whole. On RDMA a chunk is done
//    at its sender before the receiver has looked; were it forgotten, nobody would send it again.
//  - A rail writes only inside registered windows; a chunk that would not fit is dropped and takes
//    its link down with a reason.
//  - Nothing here throws after connect(); failures are link_down() events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/job_secret.hpp"

namespace allrail::transport {

/// Longest control message, in bytes. Control messages carry fences, their answers and credits.
inline constexpr std::size_t kMaxControlBytes = 512;
/// Most rails that one process uses.
inline constexpr int kMaxRails = 8;
/// How long an attempt to connect waits for any sign of the other end: another pair of rails may be
/// the right one. (A peer that answered is waited for without limit.)
inline constexpr std::int64_t kProbeLimitNs = 2'000'000'000;

/// What a peer needs to write into a window over one rail. On verbs: base address and rkey; on
/// tcp: window number and a random key that guards against stale writers.
struct RemoteKey {
  std::uint64_t address = 0;
  std::uint64_t key = 0;
  friend bool operator==(const RemoteKey&, const RemoteKey&) = default;
};

/// A `bulk` chunk of this length or more is acknowledged at once.
inline constexpr std::uint32_t kMeasuredChunkBytes = 8U << 10;

/// The piece of a put that one rail carries. `from` stays valid and unchanged until the chunk
/// completed, or until the put was finished over another rail after the link went down.
struct Chunk {
  const std::byte* from = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t immediate = 0;  // 12 bits of put number, 20 bits of chunk index: see fabric.hpp
  RemoteKey window;             // ignored where `primary`
  bool primary = true;          // the peer's primary window (its node segment)
  bool bulk = false;            // its sender may wait for the acknowledgement, or measures by it
  bool held = false;            // it lies here until submit(), with others that follow
  std::uint64_t offset = 0;     // bytes from the start of the window
};

/// Where a rail reports what happened. All calls come from inside Rail::poll() and Rail::close().
class RailEvents {
 public:
  virtual ~RailEvents() = default;
  /// `peer_rail` is the number of the peer's rail at the other end.
  virtual void link_up(int rail, int peer, int peer_rail) = 0;
  /// The connecting end only: where connect() said, the peer's end is there, but does not want the
  /// link yet. May be left out by a rail whose attempts take no longer than the peer needs to
  /// answer.
  virtual void link_answered(int rail, int peer) {
    (void)rail;
    (void)peer;
  }
  /// The link is unusable from now on; the rail has dropped it. Every failed attempt to connect is
  /// reported, too, one without an answer within kProbeLimitNs. `reason` is half a sentence.
  virtual void link_down(int rail, int peer, std::string_view reason) = 0;
  /// Whether this chunk is still missing. A rail that reads payload itself (tcp) asks before it
  /// reads and throws the payload away on false, acknowledges the chunk as usual, and does not
  /// report it as arrived; RDMA rails cannot ask.
  virtual bool chunk_wanted(int rail, int peer, std::uint32_t immediate) = 0;
  virtual void chunk_arrived(int rail, int peer, std::uint32_t immediate, std::uint32_t bytes) = 0;
  /// The oldest `count` chunks in flight on this link were delivered.
  virtual void chunks_completed(int rail, int peer, int count) = 0;
  virtual void control_arrived(int rail, int peer, std::span<const std::byte> message) = 0;
};

class Rail {
 public:
  virtual ~Rail() = default;

  /// The number of this rail in this process; events carry it.
  virtual int index() const = 0;
  /// Such as "eth0", "127.0.0.2", "mlx5_0:1".
  virtual const std::string& name() const = 0;
  virtual std::uint32_t max_chunk_bytes() const = 0;
  virtual int queue_depth() const = 0;
  /// A chunk whose acknowledgement takes longer than this is sent again by the rail itself, or by
  /// what is below it, although it may be on its way. 0: that is adapted to the network.
  virtual std::int64_t resend_after_ns() const { return 0; }

  /// What peers need to connect here, for the job's start-up exchange. At most 256 bytes.
  virtual std::vector<std::byte> address() const = 0;
  /// Members of a job prove with it that they are; it is known only after the rails' addresses were
  /// exchanged. Called before the first connect() and poll().
  virtual void set_job_secret(const JobSecret& secret) { (void)secret; }
  /// The node segment. Called once, before the first connect(). Peers learn its key when links are
  /// made. `memory` outlives the rail.
  virtual void set_primary_window(std::span<std::byte> memory) = 0;
  /// Lets peers write into `memory` until unregister_window(). Throws Error{ResourceLimit}.
  virtual RemoteKey register_window(std::span<std::byte> memory) = 0;
  virtual void unregister_window(const RemoteKey& key) = 0;

  /// Makes `memory` known as a place that chunks come from. The primary window and registered
  /// windows are known already; rails that have the system copy take any memory and do nothing.
  /// Throws Error{ResourceLimit}.
  virtual void register_source(std::span<const std::byte> memory) { (void)memory; }
  virtual void unregister_source(std::span<const std::byte> memory) { (void)memory; }

  /// Wants a link to `peer` and keeps wanting it: after a link_down the rail tries again by itself,
  /// at first after 100 ms, then up to every second, until forget(). The lower rank of the pair
  /// connects to the rail with that address; with another address than before, it gives up an
  /// attempt under way and tries there, and a link that is up stays. The higher one accepts
  /// whichever rail of the peer connects. Idempotent.
  virtual void connect(int peer, std::span<const std::byte> address) = 0;
  /// Before connect(): the link is the only one between the two hosts, whatever rails this one has.
  /// Where it fails nothing takes over, so it had better be patient.
  virtual void set_only_link(int peer) { (void)peer; }
  virtual void forget(int peer) = 0;
  virtual bool is_up(int peer) const = 0;

  /// Starts to send. False: not now (link down, or the queue is full). The chunk is copied, its
  /// bytes are not.
  virtual bool post(int peer, const Chunk& chunk) = 0;
  /// Sends a short message; reliable while the link lives, not ordered against chunks.
  virtual bool post_control(int peer, std::span<const std::byte> message) = 0;
  /// Hands over whatever was accepted and still lies here. Rails that hand it over at once do
  /// nothing.
  virtual void submit() {}

  /// Makes progress and reports events. True if anything happened. Never blocks.
  virtual bool poll(RailEvents& events) = 0;
  /// A look at what has come from one peer and at nothing else, where that is cheaper. Whoever
  /// calls it must call poll() now and then.
  virtual bool poll_peer(RailEvents& events, int peer) {
    (void)peer;
    return poll(events);
  }
  /// Everything posted has left this process: the peer can receive it without our polling. False
  /// while something lies here that submit() would hand over.
  virtual bool flushed() const = 0;
  /// Bytes to `peer` on their way out of this host, since something behind this process is slower
  /// than it: a wire, a shaper, an adapter. What the peer has no room for does not count. -1: not
  /// known.
  virtual std::int64_t unsent_bytes(int peer) const {
    (void)peer;
    return -1;
  }
  /// Bytes to `peer` that left this process and that its host has not confirmed, although peers
  /// tell of small chunks late. -1: chunks_completed() tells in time.
  virtual std::int64_t undelivered_bytes(int peer) const {
    (void)peer;
    return -1;
  }
  /// Sends acknowledgements that were held back for batching. Called before sleeping, before a wait
  /// for a peer's slot, in waits that take longer than most, and at the end of a call in a large
  /// slot or out of user memory.
  virtual void flush_acknowledgements() = 0;
  /// The same, but for what chunks that go back will acknowledge before long, as far as the rail
  /// can tell.
  virtual void acknowledge_unanswered() { flush_acknowledgements(); }
  /// The fence: see the contract above. The rail reconnects later by itself.
  virtual void close(int peer, RailEvents& events) = 0;

  /// A descriptor that is readable (epoll) when poll() has something to do; -1 if there is none.
  /// Call prepare_sleep() right before waiting on it.
  virtual int event_descriptor() const = 0;
  virtual void prepare_sleep() = 0;
};

}  // namespace allrail::transport
