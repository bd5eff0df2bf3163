// The fabric: notified puts over every rail of this process.
//
// The sender cuts a put into chunks; rails pull chunks when they have room; the receiver counts
// bytes and keeps one bit per chunk; what a failed rail did not deliver goes back into the queue
// after a fence. See docs/architecture.md for the rules. Single-threaded: the caller makes
// sure that one thread at a time is inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/pace.hpp"
#include "transport/rail.hpp"
#include "transport/rail_pairs.hpp"

namespace allrail::transport {

inline constexpr int kPutNumberBits = 12;
inline constexpr int kChunkIndexBits = 20;
/// Puts of one ordered pair that may be open (sent and not yet consumed) at once.
inline constexpr int kMaxOpenPuts = 128;
/// Chunks of one put.
inline constexpr int kMaxChunksPerPut = 1024;

struct FabricOptions {
  std::uint64_t stripe_threshold_bytes = 16ULL * 1024;  // puts up to this are always one chunk
  std::uint32_t chunk_bytes = 0;                        // 0: chosen from the put's size
  // How long a peer that was connected may have no link, or links that are lost again and deliver
  // nothing, before waiting for it is given up.
  std::int64_t no_link_limit_ns = 5'000'000'000;
  std::int64_t connect_limit_ns = 60'000'000'000;  // the same for a peer never reached so far
  std::function<std::int64_t()> now_ns;            // empty: the monotonic clock
  std::string host;                                // of this rank, for messages
  // Puts of streams are held (transport/holding.hpp): whoever puts sees to it that they leave.
  bool may_hold = false;
};

/// What the fabric is told of a peer to connect to it.
struct PeerRails {
  struct PeerRail {
    std::string name;
    std::vector<std::byte> address;
    bool is_near = true;  // to where the peer runs: small puts go there first
  };
  std::string host;
  std::vector<PeerRail> rails;  // all that the peer has
  std::vector<RailPair> pairs;  // as pair_rails() lists them, the same at both ends
};

/// Memory of a peer that was registered after start-up; travels inside ready tokens.
struct RemoteWindow {
  std::uint64_t bytes = 0;
  std::vector<RemoteKey> keys;  // one per rail of the owner
};

struct Put {
  int peer = -1;
  const std::byte* from = nullptr;
  std::uint64_t bytes = 0;               // at least 1
  const RemoteWindow* window = nullptr;  // null: the peer's primary window; copied, not kept
  std::uint64_t offset = 0;
  int port = 0;            // small puts choose their rail by port
  int only_rail = -1;      // this rail and no other, for measurements; -1: any
  bool coalesce = false;   // the peer does not answer it: it may leave together with later ones
  std::uint64_t call = 0;  // of the collective call, never less than in earlier puts
};

struct RailCounters {
  std::string name;
  std::uint64_t bytes_sent = 0, bytes_received = 0;
  std::uint64_t chunks_sent = 0, chunks_received = 0;
  std::uint64_t replays = 0;     // chunks sent again here after another rail failed
  std::uint64_t fences = 0;      // times a link of this rail was fenced
  std::uint64_t duplicates = 0;  // chunks that arrived twice and were dropped
  std::uint64_t reconnects = 0;
  std::uint64_t registrations = 0;  // of memory, beside the primary window
  std::uint64_t window_bytes = 0;   // the room last granted
  double rate_bytes_per_second = 0;
};

/// Why the fabric can go on no more.
struct FabricFailure {
  int peer = -1;
  std::string text;
  bool mismatch = false;  // not a network error: the ranks made different calls
};

class FabricState;  // fabric.cpp and its neighbours

class Fabric {
 public:
  /// `rails` are in order of preference. Throws Error{InvalidArgument} for none or too many.
  Fabric(int rank, int size, std::vector<std::unique_ptr<Rail>> rails, FabricOptions options = {});
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  int rail_count() const;
  void set_primary_window(std::span<std::byte> memory);
  RemoteWindow register_window(std::span<std::byte> memory);
  void unregister_window(const RemoteWindow& window);
  /// Memory that puts come from, other than the node segment and registered windows. Throws
  /// Error{ResourceLimit}.
  void register_source(std::span<const std::byte> memory);
  void unregister_source(std::span<const std::byte> memory);

  /// Starts links to `peer`, over as many of its pairs at once as have different rails. A pair that
  /// does not answer makes way for the next; one that was up once is kept. A rail that is left
  /// without partner plays no part for this peer. Idempotent; nothing blocks.
  void connect(int peer, const PeerRails& rails);
  /// connect() was called for this peer.
  bool knows(int peer) const;
  /// The peer's rail that my `rail` has, or last had, a link to; -1: it has no partner there.
  int partner(int peer, int rail) const;
  /// At least one link to the peer is up.
  bool connected(int peer) const;

  /// Queues a put and returns its number (per peer, from 0). The peer must be connect()ed, not
  /// necessarily connected(). `from` stays unchanged until completed().
  std::uint64_t put(const Put& put);
  /// Whether another put to the peer may be queued now (bounded queue); put() asserts it.
  bool can_put(int peer) const;
  /// Delivered to the peer's memory: `from` may be changed.
  bool completed(int peer, std::uint64_t number) const;
  /// The lowest `call` of puts that are not completed; UINT64_MAX if none.
  std::uint64_t oldest_open_call() const;
  /// All queued puts, or those of calls up to `call`, have left this process (not necessarily
  /// acknowledged).
  bool flushed(std::uint64_t call = UINT64_MAX) const;
  /// What changes whenever something of that moves.
  struct Sent {
    std::uint64_t bytes = 0;      // that rails were given, ever
    std::uint64_t in_flight = 0;  // of these, bytes_in_flight()
    friend bool operator==(const Sent&, const Sent&) = default;
  };
  Sent sent() const;
  /// All of that has reached the hosts of the peers, whatever their processes do: nothing that
  /// happens to this process can lose it.
  bool delivered() const;
  /// A peer has no link to this rank any more, and has not left: it may wait for word of what it
  /// sent last, over a link that comes up again.
  bool is_cut_off() const;
  /// Some put lies in its rail so that it leaves together with later ones. It leaves with the next
  /// look at the rails, or hand_over(): whoever goes away for long sees to that. It counts as
  /// flushed(), but no more when it was handed over and its rail was not done with it, which is
  /// true here, too, until looks at the rails have brought it on its way.
  bool holds() const;
  void hand_over();
  /// What rails have been given and peers have not acknowledged, as far as is known here.
  std::uint64_t bytes_in_flight() const;

  /// Announces that the next put from `peer`, in its order, has this many bytes; returns its
  /// number. May be called before or after chunks of it arrived.
  std::uint64_t expect(int peer, std::uint64_t bytes);
  /// Whether fewer than kMaxOpenPuts puts from the peer are expected and not consumed; expect()
  /// asserts it.
  bool can_expect(int peer) const;
  bool first_chunk_arrived(int peer, std::uint64_t number) const;
  bool arrived(int peer, std::uint64_t number) const;
  /// The receiver is finished with an arrived put. Puts are consumed in any order. `port`: as that
  /// of its sender, if there is anything to be learned for glance().
  void consume(int peer, std::uint64_t number, int port = 0);

  /// Tells `peer` a monotone word (the executor's `done` count) by a control message, which goes
  /// out at the next look at the rails.
  void tell_done(int peer, std::uint64_t done);
  /// Sends now what was told.
  void send_told();
  /// The highest that the peer told us; 0 at first.
  std::uint64_t told_done(int peer) const;

  /// Makes progress on all rails. True if anything happened. Allocates nothing on the way of
  /// chunks; never blocks.
  bool progress();
  /// A look at what may have come of the peer's next put, of that many bytes, and at nothing else.
  /// progress() may take a system call for every link, and this takes one where the put is a single
  /// chunk: it looks at the rail that the last put of that port came over. Where puts wait to be
  /// sent it is progress(), and where a peer asks for a sign of life it looks at all rails. Whoever
  /// waits calls progress() now and then, too.
  bool glance(int peer, std::uint64_t bytes, int port = 0);
  /// Sends held-back acknowledgements and credits.
  void flush_acknowledgements();
  /// Only the acknowledgements: what the peers' open puts wait for.
  void acknowledge();
  /// Sleeps until a rail has something to do, at most `timeout_ms`. False if rails cannot be
  /// slept on (fake). What is held back stays so: before a long sleep, flush_acknowledgements().
  bool sleep(int timeout_ms);
  const std::optional<FabricFailure>& failure() const;

  std::vector<RailCounters> counters() const;
  /// Of the rails over which there was enough to see it: Slow if one of them is.
  Pace pace() const;
  /// Tells all peers that this rank leaves: it has everything it needs, and its own puts are
  /// completed. Their rails are not surprised when the links close. After it, shut_down() leaves it
  /// to the rails' destructors to end links so that nothing on its way is lost.
  void say_goodbye();
  /// Waits for nothing; closes all links. The destructor does it too.
  void shut_down();

 private:
  std::unique_ptr<FabricState> state_;
};

/// What is known of the rails to a peer; 0 where it is not known yet.
struct RailSpeeds {
  double slowest_bytes_per_second = 0;
  double wire_ns_per_byte = 0;  // how long a byte takes on the slowest one
  bool are_alike = false;       // all of them, and puts that are not cut take turns on all
};

/// Bytes of every chunk but the last one of a put. The sender cuts; the receiver counts bytes and
/// need not know where.
std::uint32_t chunk_bytes_of(std::uint64_t put_bytes, int rails, const FabricOptions& options,
                             std::uint32_t max_chunk_bytes, const RailSpeeds& speeds = {});

}  // namespace allrail::transport
