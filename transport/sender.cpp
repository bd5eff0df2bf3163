// Queueing puts and pulling their chunks onto rails.
#include <algorithm>
#include <limits>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "transport/fabric_state.hpp"

namespace allrail::transport {

namespace {

// How many puts of one peer a pull looks at: a rail that leaves the end of one put to faster rails
// may begin with the next.
constexpr std::uint64_t kLookAhead = 16;

// Medium puts are acknowledged by what goes back, which may be long after they arrived. So that
// the rate is known all the same, one in so many asks for an acknowledgement of its own. Of puts
// that are cut every chunk does, unless it is so short that a rail may wait for more.
constexpr std::uint32_t kMeasuredEvery = 8;
// Of chunks that take turns, not always the same one of a turn, which has eight calls. Where rails
// are full, processors have time for all.
constexpr std::uint32_t kWatchedTurns = 7;
// Where a rail is fast, departures say what there is to say, and acknowledgements only cost.
constexpr std::uint32_t kFastMeasuredLess = 4;

// What a rail carried beyond its share is forgotten when nothing that is cut was under way for so
// long: then rails that save nothing up begin alike.
constexpr std::int64_t kAheadNs = 1'000'000;

bool measures(const RailState& rail, Link& link, const OpenPut& put, std::uint32_t chunk_bytes) {
  if (put.cut.put_bytes < kMeasuredPutBytes || chunk_bytes < kMeasuredChunkBytes) return false;
  if (put.striped) return put.measured;
  const std::uint32_t every =
      rail.departures.is_fast() ? kMeasuredEvery * kFastMeasuredLess : kMeasuredEvery;
  return link.medium_chunks++ % every == 0;
}

static_assert(kWatchedTurnBytes <= kMeasuredChunkBytes);  // shorter ones are never watched

/// Watches a chunk that was just posted, if it is time for one. `has_turn`: its rail follows from
/// TurnShares, of which some are full.
void watch(RailState& rail, int peer, std::uint32_t bytes, std::int64_t now_ns, bool has_turn,
           bool is_some_full) {
  if (rail.watched.peer >= 0 || bytes < (has_turn ? kWatchedTurnBytes : kMeasuredChunkBytes)) {
    return;
  }
  const std::uint32_t every = !has_turn ? kMeasuredEvery : is_some_full ? 1 : kWatchedTurns;
  const bool is_settled = bytes < kMeasuredChunkBytes || rail.departures.is_settled();
  if (is_settled && rail.watchable_chunks++ % every != 0) return;
  rail.watched = {peer, bytes, now_ns, has_turn && is_settled};
}

/// Chunks that are posted behind others take as long as those, which looks slow where one peer only
/// sends. What the rail delivered meanwhile says more then; it counts half, for it may be twice the
/// truth where a shaper had saved up credit. Where chunks leave at once, that is all there is to
/// it.
double wire_ns_per_byte_of(const RailState& rail) {
  if (rail.departures.is_fast()) return rail.departures.ns_per_byte();
  const double by_chunks = rail.wire_time.ns_per_byte();
  const double rate = rail.rate.bytes_per_second();
  return by_chunks > 0 && rate > 0 ? std::min(by_chunks, 2e9 / rate) : by_chunks;
}

}  // namespace

std::uint64_t FabricState::put(const Put& put) {
  Peer& to = peer(put.peer);
  if (to.next - to.head >= kPutQueue)
    base::fail_with_peer(Code::Internal, put.peer, "more than {} puts to rank {} are open",
                         kPutQueue, put.peer);
  if (put.window != nullptr &&
      (put.offset > put.window->bytes || put.bytes > put.window->bytes - put.offset ||
       put.window->keys.size() < to.rails.rails.size()))
    base::fail_with_peer(Code::Internal, put.peer,
                         "a put of {} bytes at offset {} does not fit the window of {} bytes of "
                         "rank {}",
                         put.bytes, put.offset, put.window->bytes, put.peer);
  std::uint32_t max_chunk_bytes = UINT32_MAX;
  for (std::size_t i = 0; i < to.links.size(); ++i)
    max_chunk_bytes = std::min(max_chunk_bytes, rails_[i].rail->max_chunk_bytes());
  const RailSpeeds speeds =
      put.bytes > options_.stripe_threshold_bytes ? speeds_to(to) : RailSpeeds();
  const Cut cut = cut_put(
      put.bytes, chunk_bytes_of(put.bytes, to.pair_count, options_, max_chunk_bytes, speeds));
  if (put.bytes == 0 || cut.count > kMaxChunksPerPut)
    base::fail_with_peer(Code::Internal, put.peer,
                         "a put of {} bytes to rank {} is not between 1 byte and {} chunks of {} "
                         "bytes",
                         put.bytes, put.peer, kMaxChunksPerPut, max_chunk_bytes);

  const std::uint64_t number = to.next++;
  OpenPut& open = to.put(number);
  open.number = number;
  open.order = next_order_++;
  open.from = put.from;
  open.cut = cut;
  open.next_chunk = open.done_chunks = 0;
  open.offset = put.offset;
  open.call = put.call;
  open.peer = put.peer;
  open.port = put.port;
  open.only_rail = put.only_rail;
  open.primary = put.window == nullptr;
  open.coalesce = put.coalesce;
  open.striped = put.bytes > options_.stripe_threshold_bytes && cut.count > 1;
  open.measured = !open.striped || is_to_measure(to, put);
  if (put.window != nullptr)
    std::copy_n(put.window->keys.begin(), to.rails.rails.size(), open.keys.begin());
  open.previous = newest_;
  open.next = nullptr;
  (newest_ != nullptr ? newest_->next : oldest_) = &open;
  newest_ = &open;

  now_ns_ = now();
  may_hold_ = options_.may_hold &&
              holding_.note(may_be_held(to, put), put.bytes, put.call, now_ns_) &&
              (holds_ || rails_flushed());
  open.observation = 0;
  if (open.striped && open.measured && put.only_rail < 0) observe(open);
  activate(to);
  // Nobody is ahead of this put: it may start at once. Otherwise the next progress() is in charge.
  if (active_.size() == 1) {
    pump();
    submit();
    look_at_departures();
  }
  may_hold_ = false;
  return number;
}

bool FabricState::are_fast(const Peer& peer) const {
  for (std::size_t i = 0; i < peer.links.size(); ++i) {
    if (peer.links[i].usable() && !rails_[i].departures.is_fast()) return false;
  }
  return true;
}

static_assert(kMostHeldPutBytes < kMeasuredPutBytes);
bool FabricState::may_be_held(const Peer& peer, const Put& put) const {
  return put.coalesce &&
         (put.bytes <= kMostHeldPutBytes || (put.bytes <= kMostHeldFastPutBytes && are_fast(peer)));
}

/// Whether the chunks of a put that is cut ask for acknowledgements of their own. Where the
/// processors are what rails wait for these cost more than they tell, and one put in so many is
/// enough. What goes straight to user memory mostly comes from there, and its sender waits.
bool FabricState::is_to_measure(Peer& peer, const Put& put) const {
  if (put.window != nullptr || !are_fast(peer)) return true;
  return peer.fast_puts++ % kMeasuredEvery == 0;
}

RailSpeeds FabricState::speeds_to(const Peer& peer) const {
  RailSpeeds speeds;
  double slowest_usable = std::numeric_limits<double>::max();
  double fastest_usable = 0;
  int usable = 0;
  int near = 0;
  bool is_measured = true;
  for (std::size_t i = 0; i < peer.links.size(); ++i) {
    const Link& link = peer.links[i];
    const double rate = link.peer_rail >= 0 ? rails_[i].rate.bytes_per_second() : 0;
    if (rate > 0 &&
        (speeds.slowest_bytes_per_second <= 0 || rate < speeds.slowest_bytes_per_second))
      speeds.slowest_bytes_per_second = rate;
    if (!link.usable()) continue;
    ++usable;
    near += link.is_near ? 1 : 0;
    slowest_usable = std::min(slowest_usable, rate);
    fastest_usable = std::max(fastest_usable, rate);
    const double wire_ns_per_byte = wire_ns_per_byte_of(rails_[i]);
    is_measured = is_measured && wire_ns_per_byte > 0;
    speeds.wire_ns_per_byte = std::max(speeds.wire_ns_per_byte, wire_ns_per_byte);
  }
  if (!is_measured) speeds.wire_ns_per_byte = 0;
  // Of some near rails and some far ones, puts that are not cut take the near ones only.
  speeds.are_alike = (near == 0 || near == usable) && fastest_usable > 0 &&
                     rates_are_alike(slowest_usable, fastest_usable);
  return speeds;
}

void FabricState::activate(Peer& peer) {
  pump_needed_ = true;
  if (peer.active || !peer.has_unsent()) return;
  peer.active = true;
  active_.push_back(&peer);
}

bool FabricState::has_room(const Link& link, RailState& rail, std::uint32_t chunk_bytes) {
  if (!link.usable() || link.blocked || link.in_flight >= rail.queue_depth) return false;
  rail.counters.window_bytes =
      link_window_bytes(chunk_bytes, link.rate.bytes_per_second(), link.round_trip.round_trip_ns(),
                        rail.resend_after_ns);
  if (rail.departures.is_fast())
    rail.counters.window_bytes = std::max(rail.counters.window_bytes, kFastWindowBytes);
  return link.in_flight_bytes < rail.counters.window_bytes;
}

/// The rails to a peer in the eyes of choose_rail().
void FabricState::describe(const Peer& peer, std::uint32_t chunk_bytes,
                           std::span<RailChoice> choices) {
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const Link& link = peer.links[i];
    RailChoice& choice = choices[i];
    choice.has_room = has_room(link, rails_[i], chunk_bytes);
    // A rail that refuses with nothing in flight promises nothing: nobody waits for it.
    choice.usable = link.usable() && (choice.has_room || link.in_flight > 0);
    const double weight = shares_.weight(static_cast<int>(i));
    choice.bytes_per_second = weight > 0 ? weight : rails_[i].rate.bytes_per_second();
    // What was in flight at the last look is partly through by now. Peers of whom nothing is
    // awaited are looked at rarely.
    choice.in_flight_bytes =
        rails_[i].in_flight_bytes -
        std::min(rails_[i].in_flight_bytes, rails_[i].rate.expected_bytes(now_ns_));
    choice.ahead_bytes = now_ns_ - ahead_since_ns_ < kAheadNs ? ahead_bytes_[i] : 0;
  }
}

bool FabricState::post(Peer& peer, int rail, OpenPut& put, std::uint32_t index) {
  Link& link = peer.links[static_cast<std::size_t>(rail)];
  RailState& state = rails_[static_cast<std::size_t>(rail)];
  Chunk chunk;
  const std::uint64_t start = put.cut.offset(index);
  chunk.from = put.from + start;
  chunk.bytes = put.cut.bytes(index);
  chunk.immediate = make_immediate(put.number, index);
  chunk.primary = put.primary;
  chunk.held = may_hold_;
  // What asks for none must not fill the window. Short chunks do not, and say nothing of the rate.
  const bool fills_window = chunk.bytes >= kMeasuredChunkBytes &&
                            link.in_flight_bytes + chunk.bytes > state.counters.window_bytes / 2;
  chunk.bulk = (put.measured && put.cut.count > peer.links.size()) || fills_window ||
               measures(state, link, put, chunk.bytes);
  if (!put.primary) chunk.window = put.keys[static_cast<std::size_t>(link.peer_rail)];
  chunk.offset = put.offset + start;
  if (!state.rail->post(peer.rank, chunk)) {
    link.blocked = true;
    return false;
  }
  if (may_hold_) {
    holds_ = true;
    state.hold(peer.rank, chunk.bytes);
  } else {
    to_submit_ = true;
    // What is held leaves before it, and would be counted as time of its own.
    if (!holds_ && chunk.bytes >= kWatchedTurnBytes) {
      watch(state, peer.rank, chunk.bytes, now_ns_, has_shared_turn(put),
            turn_shares_.is_some_full());
    }
  }
  InFlight& record = link.at(link.in_flight);
  record.chunk = {put.number, index};
  record.bytes = chunk.bytes;
  // The short end of a put says little about the rate.
  record.bulk = chunk.bulk && chunk.bytes >= put.cut.chunk_bytes / 2;
  record.rail_was_idle = state.in_flight == 0;
  record.posted_ns = now_ns_;
  record.link_stamp = link.rate.posted(now_ns_);
  record.rail_stamp = state.rate.posted(now_ns_);
  if (link.in_flight++ == 0) link.waiting_since_ns = now_ns_;
  link.in_flight_bytes += chunk.bytes;
  link.posted_bytes += chunk.bytes;
  state.chunk_posted(chunk.bytes, now_ns_);
  ++state.counters.chunks_sent;
  state.counters.bytes_sent += chunk.bytes;
  return true;
}

int FabricState::place_striped(Peer& peer, OpenPut& put, std::uint32_t index,
                               std::uint64_t waiting_bytes) {
  const std::uint32_t bytes = put.cut.bytes(index);
  std::array<RailChoice, kMaxRails> all;
  const std::span<RailChoice> choices(all.data(), peer.links.size());
  for (std::size_t tries = 0; tries < choices.size(); ++tries) {
    describe(peer, bytes, choices);
    const int rail = choose_rail(choices, bytes, waiting_bytes);
    if (rail < 0) return rail;
    if (!post(peer, rail, put, index)) continue;
    add_ahead(choices, rail, bytes);
    for (std::size_t i = 0; i < choices.size(); ++i) ahead_bytes_[i] = choices[i].ahead_bytes;
    ahead_since_ns_ = now_ns_;
    return rail;
  }
  return -1;
}

/// Gives one chunk to a rail and returns which; -1 if all that may take it have no room.
int FabricState::place(Peer& peer, OpenPut& put, std::uint32_t index, std::uint64_t waiting_bytes) {
  const std::uint32_t bytes = put.cut.bytes(index);
  if (put.only_rail >= 0) {
    const auto at = static_cast<std::size_t>(put.only_rail);
    if (!has_room(peer.links[at], rails_[at], bytes)) return -1;
    return post(peer, put.only_rail, put, index) ? put.only_rail : -1;
  }
  if (put.striped) return place_striped(peer, put, index, waiting_bytes);
  for (std::size_t tries = 0; tries < peer.links.size(); ++tries) {
    const int rail = choose_small(peer, put, bytes);
    if (rail < 0 || post(peer, rail, put, index)) return rail;
  }
  return -1;
}

bool FabricState::any_room(const Peer& peer) const {
  for (std::size_t i = 0; i < peer.links.size(); ++i) {
    const Link& link = peer.links[i];
    if (link.usable() && !link.blocked && link.in_flight < rails_[i].queue_depth) return true;
  }
  return false;
}

void FabricState::pump_peer(Peer& peer, std::uint64_t& ahead_bytes) {
  while (!peer.requeued.empty()) {
    const ChunkName chunk = peer.requeued.front();
    OpenPut& put = peer.put(chunk.put);
    const std::uint32_t bytes = put.cut.bytes(chunk.index);
    const int rail = place(peer, put, chunk.index, ahead_bytes + bytes);
    if (rail < 0) break;
    ++rails_[static_cast<std::size_t>(rail)].counters.replays;
    peer.requeued.erase(peer.requeued.begin());
  }
  const std::uint64_t end = std::min(peer.admitted(), peer.unsent + kLookAhead);
  for (std::uint64_t number = peer.unsent; number < end; ++number) {
    OpenPut& put = peer.put(number);
    bool placed = true;
    while (placed && put.next_chunk < put.cut.count) {
      const std::uint64_t left = put.cut.put_bytes - put.cut.offset(put.next_chunk);
      placed = place(peer, put, put.next_chunk, ahead_bytes + left) >= 0;
      if (placed) ++put.next_chunk;
    }
    if (put.next_chunk == put.cut.count) {
      if (number == peer.unsent) ++peer.unsent;
      continue;
    }
    ahead_bytes += put.cut.put_bytes - put.cut.offset(put.next_chunk);
    if (!any_room(peer)) return;
  }
  // Puts behind the first unsent one may have been taken whole.
  while (peer.unsent < peer.admitted() &&
         peer.put(peer.unsent).next_chunk == peer.put(peer.unsent).cut.count)
    ++peer.unsent;
}

void FabricState::pump() {
  pump_needed_ = false;
  const auto order_of = [](Peer* peer) {
    if (!peer->requeued.empty()) return peer->put(peer->requeued.front().put).order;
    return peer->put(peer->unsent).order;
  };
  // Whoever began to wait first is served first. An insertion sort: short, nearly sorted, and it
  // allocates nothing.
  for (std::size_t i = 1; i < active_.size(); ++i)
    for (std::size_t j = i; j > 0 && order_of(active_[j]) < order_of(active_[j - 1]); --j)
      std::swap(active_[j], active_[j - 1]);

  std::uint64_t ahead_bytes = 0;
  std::size_t kept = 0;
  for (Peer* peer : active_) {
    pump_peer(*peer, ahead_bytes);
    if (peer->has_unsent())
      active_[kept++] = peer;
    else
      peer->active = false;
  }
  active_.resize(kept);
}

}  // namespace allrail::transport
