// What the fabric keeps of its peers, of the links to them, of puts that are open, and of its
// rails.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/arrival.hpp"
#include "transport/control_message.hpp"
#include "transport/fabric.hpp"
#include "transport/pair_probe.hpp"
#include "transport/queues.hpp"
#include "transport/shares.hpp"
#include "transport/striping.hpp"

namespace allrail::transport {

/// Puts of one peer that are queued or not completed. Also keeps put numbers unmistakable on the
/// wire: the oldest that may still be sent and the newest are less than half the space apart.
inline constexpr int kPutQueue = 256;
static_assert(kPutQueue + kMaxOpenPuts < (1 << kPutNumberBits) / 2);

/// Puts from this length on measure rails, by acknowledgements of their own.
inline constexpr std::uint32_t kMeasuredPutBytes = 12 * 1024;
/// Shorter ones share segments, and take no time on any rail.
inline constexpr std::uint32_t kLeastTurnBytes = 512;
/// Whether rails have turns of such puts, which they may give up.
constexpr bool takes_turns(std::uint64_t put_bytes) {
  return put_bytes >= kLeastTurnBytes && put_bytes < kMeasuredPutBytes;
}
/// Of these, chunks from this length on say whether their rail is full.
inline constexpr std::uint32_t kWatchedTurnBytes = 4096;
/// The shortest batch that is watched.
inline constexpr std::uint32_t kWatchedBatchBytes = 1024;

/// A put that is not completed.
struct OpenPut {
  std::uint64_t number = 0;
  std::uint64_t order = 0;  // over all peers
  const std::byte* from = nullptr;
  Cut cut;
  std::uint32_t next_chunk = 0;  // the first that no rail has taken
  std::uint32_t done_chunks = 0;
  std::uint64_t offset = 0;
  std::uint64_t call = 0;
  std::uint64_t observation = 0;  // the number of the one that it is part of; 0: of none
  int peer = -1;
  int port = 0;
  int only_rail = -1;
  bool primary = true;
  bool striped = false;
  bool measured = true;                     // its chunks ask for acknowledgements of their own
  bool coalesce = false;                    // it may leave together with later ones
  std::array<RemoteKey, kMaxRails> keys{};  // by rail of the peer
  OpenPut* previous = nullptr;              // all open puts of the fabric, oldest first
  OpenPut* next = nullptr;
};

struct ChunkName {
  std::uint64_t put = 0;
  std::uint32_t index = 0;
};

struct InFlight {
  ChunkName chunk;
  std::uint32_t bytes = 0;
  bool bulk = false;
  bool rail_was_idle = false;
  std::int64_t posted_ns = 0;
  RateMeter::Stamp link_stamp;
  RateMeter::Stamp rail_stamp;
};

/// What the shares of the rails follow from: how long each was busy with its part of a put, or of
/// some short puts to one peer together.
struct Observation {
  std::uint64_t number = 0;                       // 0: of nothing
  int peer = -1;                                  // to whom they go
  std::uint32_t chunks = 0;                       // that they were cut into
  std::uint32_t open_puts = 0;                    // of which some chunk is not done
  std::array<std::int64_t, kMaxRails> busy_ns{};  // of each rail when the first put began
  std::array<Part, kMaxRails> parts{};            // by my rail
};
/// So many of the newest are kept, of all peers together: shares can do without the others.
inline constexpr std::uint64_t kObservations = 16;

/// My side of a fence: the chunks whose fate the peer is asked for.
struct PendingFence {
  bool open = false;
  std::uint64_t generation = 0;
  int peer_rail = 0;  // the other end of the link
  int count = 0;
  std::array<ChunkName, kMaxLinkChunks> chunks{};
  std::int64_t next_send_ns = 0;
  int last_carrier = -1;
};

/// The peer's side of its fence, to be answered after the polls.
struct FenceRequest {
  bool open = false;
  int carrier = -1;
  ControlMessage message;
};

struct Link {
  bool up = false;
  bool blocked = false;  // post() said no: tried again at the next progress()
  bool hello_due = false;
  bool pong_due = false;
  bool is_near = true;  // the other end of the present or last link is, to where the peer runs
  int peer_rail = -1;   // at that other end; -1: there was none
  int target = -1;      // the connecting end: the rail of the peer that is tried
  std::uint64_t generation = 0;
  std::uint64_t peer_generation = 0;  // of the peer's hello on the present link; 0: not here yet
  // Why it went down first, which stays while it is tried again; what the last try said since then.
  std::string reason = "not connected yet";
  std::string last_attempt;

  std::array<InFlight, kMaxLinkChunks> ring;
  std::uint32_t head = 0;
  int in_flight = 0;
  std::uint64_t in_flight_bytes = 0;
  std::uint64_t posted_bytes = 0;  // ever, over the present or last link
  RateMeter rate;
  RoundTripMeter round_trip;
  std::uint32_t medium_chunks = 0;  // of those that may measure the rate, see measures()

  std::int64_t waiting_since_ns = 0;  // last sign of life while something was unanswered
  std::int64_t ping_sent_ns = 0;      // the newest ping, and the newest that was answered
  std::int64_t ping_answered_ns = 0;
  std::int64_t answer_heard_ns = 0;  // when the newest answer was read
  // The newest ping whose answer was read before a look at all links.
  std::int64_t answered_before_ns = 0;
  std::int64_t accused_ns = 0;  // when another link first had an answer that this one owes
  std::uint64_t pong_number = 0;

  PendingFence fence;

  /// May carry chunks: the fate of what an earlier generation carried is known.
  bool usable() const { return up && !fence.open; }
  InFlight& at(int position) {
    return ring[(head + static_cast<std::uint32_t>(position)) % kMaxLinkChunks];
  }
};

constexpr std::array<std::int16_t, kMaxRails> unknown_rails() {
  std::array<std::int16_t, kMaxRails> rails{};
  for (std::int16_t& rail : rails) rail = -1;
  return rails;
}

/// Puts of a stream that go over one rail in a row.
struct StreamTurn {
  int port = -1;
  int rail = 0;
  int puts = 0;
  bool is_trial = false;  // it lasts as long as the port does
};

struct Peer {
  int rank = -1;
  int pair_count = 0;       // links that there can be
  std::vector<Link> links;  // by my rail, those without partner too
  PeerRails rails;
  PairProbe probe;                           // the connecting end only
  std::vector<std::string> pair_reasons;     // by place in rails.pairs, why it failed last
  std::vector<FenceRequest> fence_requests;  // by rail of the peer
  bool was_connected = false;
  bool left = false;       // it said goodbye
  bool probe_due = false;  // other pairs may be due now

  // Puts to this peer: [head, next) are open, [head, unsent) are fully taken by rails.
  std::vector<OpenPut> queue;
  std::uint64_t head = 0;
  std::uint64_t unsent = 0;
  std::uint64_t next = 0;
  std::vector<ChunkName> requeued;  // of failed links, taken before all others
  bool active = false;              // in the list of peers that have something to send
  std::uint32_t fast_puts = 0;      // of those that need not be measured, see is_to_measure()
  StreamTurn turn;
  Queues queues;

  // Puts from this peer.
  ArrivalTable arrivals;
  int last_rail = -1;                                    // that a chunk came over
  std::array<std::int16_t, kMaxOpenPuts> rail_of_put{};  // the same, of each put by its number
  std::array<std::int16_t, kMaxRails> rail_of_port = unknown_rails();  // and of a port's last put
  unsigned rails_heard = 0;       // a bit for each that chunks came over since the last state
  std::uint64_t whole_bytes = 0;  // puts of up to this are probably one chunk, by the last ones

  // The words told to and by the peer.
  std::uint64_t done = 0;
  std::uint64_t told_consumed = 0;
  std::uint64_t told_at_put = 0;  // `next` when this was told
  std::uint64_t told_done = 0;
  std::uint64_t confirmed_consumed = 0;
  std::uint64_t confirmed_done = 0;
  std::uint64_t peer_consumed = 0;
  std::uint64_t peer_done = 0;
  bool state_due = false;
  std::int64_t told_ns = 0;
  std::int64_t next_ping_ns = 0;
  std::int64_t ping_interval_ns = 0;
  std::int64_t no_link_since_ns = -1;
  // Links that were lost, one after the other, with chunks of which the peer told nothing.
  int losses_in_vain = 0;
  std::int64_t in_vain_since_ns = 0;

  OpenPut& put(std::uint64_t number) { return queue[number % kPutQueue]; }
  /// Ports that have their turn on the same rail, where all are usable, share an entry.
  std::int16_t& rail_of(int port) {
    return rail_of_port[static_cast<unsigned>(port) % static_cast<unsigned>(pair_count)];
  }
  /// Rails may take chunks of puts below this one.
  std::uint64_t admitted() const {
    const std::uint64_t limit = peer_consumed + kMaxOpenPuts;
    return next < limit ? next : limit;
  }
  bool has_unsent() const { return !requeued.empty() || unsent < admitted(); }
};

/// Some of the rails to a peer.
struct RailSet {
  unsigned bits = 0;  // one for each rail
  unsigned count = 0;

  void add(int rail) {
    bits |= 1U << rail;
    ++count;
  }
};

/// A chunk that is watched until it has left this host, or what left with it of a stream.
struct Watched {
  int peer = -1;  // -1: none is
  std::uint32_t bytes = 0;
  std::int64_t posted_ns = 0;
  bool has_turn = false;  // see FabricState::has_shared_turn()
  bool is_batch = false;

  /// By what its time is judged. An adapter tells some time after a short one left; a rail that is
  /// full keeps a short one for as long as a long one.
  std::uint32_t judged_bytes() const {
    return is_batch ? std::max(bytes, kMeasuredChunkBytes) : bytes;
  }
};

/// What a rail holds of a stream, see holding.hpp.
struct HeldBatch {
  int peer = -1;            // the first to whom it holds something; -1: to nobody
  std::uint32_t bytes = 0;  // to that peer
};

struct RailState {
  void chunk_posted(std::uint64_t bytes, std::int64_t now_ns) {
    if (in_flight++ == 0) busy_since_ns = now_ns;
    in_flight_bytes += bytes;
  }
  void chunk_ended(std::uint64_t bytes, std::int64_t now_ns) {
    if (--in_flight == 0) busy_before_ns += now_ns - busy_since_ns;
    in_flight_bytes -= bytes;
  }
  void hold(int peer, std::uint32_t bytes) {
    if (held.peer < 0) held.peer = peer;
    if (held.peer == peer) held.bytes += bytes;
  }
  /// After what it holds was handed over.
  void watch_held(std::int64_t now_ns) {
    const HeldBatch batch = std::exchange(held, {});
    if (watched.peer >= 0 || batch.bytes < kWatchedBatchBytes) return;
    watched = {batch.peer, batch.bytes, now_ns, false, true};
  }
  /// How long it has had something in flight.
  std::int64_t busy_ns(std::int64_t now_ns) const {
    return busy_before_ns + (in_flight > 0 ? now_ns - busy_since_ns : 0);
  }

  std::unique_ptr<Rail> rail;
  RateMeter rate;
  WireTimeMeter wire_time;
  DepartureMeter departures;
  PaceMeter pace;
  Watched watched;
  HeldBatch held;
  Load load;
  std::uint32_t watchable_chunks = 0;
  std::uint64_t in_flight_bytes = 0;
  int in_flight = 0;
  std::int64_t busy_before_ns = 0;
  std::int64_t busy_since_ns = 0;
  int queue_depth = 0;  // per link: the rail's, and not more than a fence can name
  std::int64_t resend_after_ns = 0;
  RailCounters counters;
};

}  // namespace allrail::transport
