// Completions: what each tells of the rails, and puts that are done.
#include <algorithm>

#include "transport/fabric_state.hpp"

namespace allrail::transport {

namespace {
// Acknowledgements and small puts may follow a watched chunk.
constexpr std::int64_t kMostUnsentBytes = 4096;
constexpr std::uint32_t kMostUnsentShare = 4;

// Of fewer chunks than this, one more or less for a rail says nothing.
constexpr std::uint32_t kLeastChunksToLearn = 6;

std::int64_t most_unsent_bytes(std::uint32_t watched_bytes) {
  return std::min<std::int64_t>(kMostUnsentBytes, watched_bytes / kMostUnsentShare);
}
}  // namespace

void FabricState::chunks_completed(int rail, int peer_rank, int count) {
  Peer& peer = this->peer(peer_rank);
  Link& link = peer.links[static_cast<std::size_t>(rail)];
  RailState& state = rails_[static_cast<std::size_t>(rail)];
  const std::int64_t now_ns = now_ns_ = now();
  for (int i = 0; i < count && link.in_flight > 0; ++i) {
    const InFlight& record = link.at(0);
    link.rate.completed(now_ns, record.posted_ns, record.link_stamp, record.bytes, record.bulk);
    state.rate.completed(now_ns, record.posted_ns, record.rail_stamp, record.bytes, record.bulk);
    if (record.bulk) {
      state.wire_time.completed(now_ns - record.posted_ns, link.round_trip.round_trip_ns(),
                                record.bytes);
    }
    link.round_trip.completed(now_ns - record.posted_ns, record.rail_was_idle);
    const ChunkName chunk = record.chunk;
    link.in_flight_bytes -= record.bytes;
    // Always the same few lines where little is in flight.
    link.head = --link.in_flight == 0 ? 0 : (link.head + 1) % kMaxLinkChunks;
    const OpenPut& put = peer.put(chunk.put);
    if (put.striped) ahead_since_ns_ = now_ns;
    if (Observation* observed = observation_of(put)) {
      const auto at = static_cast<std::size_t>(rail);
      Part& part = observed->parts[at];
      part.took_ns = std::max<std::int64_t>(state.busy_ns(now_ns) - observed->busy_ns[at], 1);
      ++part.chunks;
    }
    state.chunk_ended(record.bytes, now_ns);
    chunk_done(peer, chunk);
  }
  link.waiting_since_ns = now_ns;
  peer.losses_in_vain = 0;
  pump_needed_ = true;
}

void FabricState::look_at_departures() {
  for (RailState& state : rails_) {
    Watched& watched = state.watched;
    if (watched.peer < 0) continue;
    const std::int64_t unsent_bytes = state.rail->unsent_bytes(watched.peer);
    const std::int64_t now_ns = now();
    const std::int64_t took_ns = now_ns - watched.posted_ns;
    // How much longer it takes does not matter: looks cost system calls.
    const bool is_slow = DepartureMeter::is_slow(took_ns, watched.judged_bytes());
    const bool is_here = unsent_bytes >= most_unsent_bytes(watched.bytes);
    if (is_here && !is_slow) continue;
    // What is gone at a look that comes late may have left long before.
    const auto rail = static_cast<int>(&state - rails_.data());
    const bool is_in_time = unsent_bytes >= 0 && is_here == is_slow;
    if (is_in_time && watched.has_turn) turn_shares_.saw(rail, is_slow);
    if (unsent_bytes >= 0 && (watched.is_batch || watched.bytes >= kMeasuredChunkBytes)) {
      const double load = state.load.bytes_per_second(state.counters.bytes_sent, now_ns);
      if (!watched.is_batch) state.departures.left(took_ns, watched.bytes);
      if (is_in_time && watched.is_batch) state.pace.saw_batch(is_slow, load);
      if (is_in_time && !watched.is_batch) state.pace.saw(is_slow, load);
    }
    watched.peer = -1;
  }
}

void FabricState::chunk_done(Peer& peer, const ChunkName& chunk) {
  OpenPut& put = peer.put(chunk.put);
  // A goodbye has completed it, and what was in flight is acknowledged later.
  if (put.done_chunks == put.cut.count) return;
  if (++put.done_chunks < put.cut.count) return;
  if (Observation* observed = observation_of(put)) {
    const bool is_whole = observed->chunks >= kLeastChunksToLearn;
    if (--observed->open_puts == 0 && is_whole) learn_shares(peer, *observed);
  }
  complete(peer, put);
}

/// Puts of few chunks are observed together with the next ones to the same peer.
void FabricState::observe(OpenPut& put) {
  Observation& newest = observations_[newest_observation_ % kObservations];
  const bool is_short = put.cut.count < kLeastChunksToLearn;
  if (is_short && newest.number != 0 && newest.peer == put.peer &&
      newest.chunks < kLeastChunksToLearn) {
    // What rails carried since the last of them ended is no part of it.
    for (std::size_t i = 0; newest.open_puts == 0 && i < rails_.size(); ++i) {
      newest.busy_ns[i] = rails_[i].busy_ns(now_ns_) - newest.parts[i].took_ns;
    }
    put.observation = newest.number;
    newest.chunks += put.cut.count;
    ++newest.open_puts;
    return;
  }
  put.observation = ++newest_observation_;
  Observation& observed = observations_[newest_observation_ % kObservations];
  observed = {newest_observation_, put.peer, put.cut.count, 1, {}, {}};
  for (std::size_t i = 0; i < rails_.size(); ++i) observed.busy_ns[i] = rails_[i].busy_ns(now_ns_);
}

/// nullptr: nobody observes it.
Observation* FabricState::observation_of(const OpenPut& put) {
  if (put.observation == 0) return nullptr;
  Observation& observed = observations_[put.observation % kObservations];
  return observed.number == put.observation ? &observed : nullptr;
}

void FabricState::learn_shares(const Peer& peer, Observation& observed) {
  for (std::size_t i = 0; i < peer.links.size(); ++i) {
    observed.parts[i].usable = peer.links[i].usable();
    observed.parts[i].bytes_per_second = rails_[i].rate.bytes_per_second();
  }
  shares_.completed({observed.parts.data(), peer.links.size()});
}

void FabricState::complete(Peer& peer, OpenPut& put) {
  (put.previous != nullptr ? put.previous->next : oldest_) = put.next;
  (put.next != nullptr ? put.next->previous : newest_) = put.previous;
  while (peer.head < peer.next && peer.put(peer.head).done_chunks == peer.put(peer.head).cut.count)
    ++peer.head;
}

}  // namespace allrail::transport
