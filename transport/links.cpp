// Links going up, arrivals, and the control messages.
#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "transport/fabric_state.hpp"

namespace allrail::transport {

using Kind = ControlMessage::Kind;

void FabricState::link_up(int rail, int peer_rank, int peer_rail) {
  Peer* found = peers_.find(peer_rank);
  if (found == nullptr) return;
  Peer& peer = *found;
  Link& link = peer.links[static_cast<std::size_t>(rail)];
  if (link.up) lose_link(peer, rail, "the peer connected anew");
  link.up = true;
  link.blocked = false;
  link.peer_generation = 0;
  link.hello_due = true;
  link.posted_bytes = 0;
  peer.queues.forget(rail);
  if (++link.generation > 1) ++rails_[static_cast<std::size_t>(rail)].counters.reconnects;
  take_pair(peer, rail, peer_rail);
  peer.was_connected = true;
  peer.no_link_since_ns = -1;
  owed_ = true;
  pump_needed_ = true;
}

void FabricState::link_down(int rail, int peer_rank, std::string_view reason) {
  Peer* found = peers_.find(peer_rank);
  if (found == nullptr) return;
  Peer& peer = *found;
  // Most looks do not read the clock, and limits begin here.
  now_ns_ = now();
  Link& link = peer.links[static_cast<std::size_t>(rail)];
  if (link.up) return lose_link(peer, rail, reason);
  // A failed attempt to connect. It says less than what took the link down before it.
  (link.generation > 0 ? link.last_attempt : link.reason) = reason;
  pair_failed(peer, rail, reason);
}

bool FabricState::chunk_wanted(int rail, int peer_rank, std::uint32_t immediate) {
  const bool wanted = peer(peer_rank).arrivals.wanted(immediate);
  if (!wanted) ++rails_[static_cast<std::size_t>(rail)].counters.duplicates;
  return wanted;
}

void FabricState::chunk_arrived(int rail, int peer_rank, std::uint32_t immediate,
                                std::uint32_t bytes) {
  Peer& from = peer(peer_rank);
  RailCounters& counters = rails_[static_cast<std::size_t>(rail)].counters;
  from.last_rail = rail;
  from.rail_of_put[(immediate >> kChunkIndexBits) % kMaxOpenPuts] = static_cast<std::int16_t>(rail);
  from.rails_heard |= 1U << rail;
  if (chunk_index_of(immediate) > 0) {
    from.whole_bytes = 0;
  } else if (bytes > from.whole_bytes) {
    from.whole_bytes = bytes;
  }
  switch (from.arrivals.add(immediate, bytes)) {
    case ArrivalTable::Result::New:
      ++counters.chunks_received;
      counters.bytes_received += bytes;
      break;
    case ArrivalTable::Result::Duplicate:
      ++counters.duplicates;
      break;
    case ArrivalTable::Result::Invalid:
      condemn(from, rail, "the peer sent a chunk of a put that is not open");
      break;
    case ArrivalTable::Result::Mismatch:
      give_up(peer_rank,
              fmt::format("rank {} received more bytes of put {} from rank {} than the call here "
                          "has: the ranks made different calls; every rank must make the same "
                          "collective calls in the same order with the same sizes and algorithm",
                          rank_, immediate >> kChunkIndexBits, peer_rank),
              true);
      break;
  }
}

void FabricState::condemn(Peer& peer, int rail, std::string reason) {
  const Link& link = peer.links[static_cast<std::size_t>(rail)];
  condemned_.push_back({&peer, rail, link.generation, std::move(reason)});
}

int FabricState::healthy_link(const Peer& peer, int preferred) const {
  const int links = static_cast<int>(peer.links.size());
  for (int i = 0; i < links; ++i) {
    const int rail = (preferred + i) % links;
    if (peer.links[static_cast<std::size_t>(rail)].up) return rail;
  }
  return -1;
}

bool FabricState::send(Peer& peer, int rail, ControlMessage& message) {
  message.consumed = peer.arrivals.lowest();
  message.done = peer.done;
  message.seen_consumed = peer.peer_consumed;
  message.seen_done = peer.peer_done;
  ControlBytes bytes;
  const std::size_t length = encode(message, bytes);
  if (!rails_[static_cast<std::size_t>(rail)].rail->post_control(peer.rank, {bytes.data(), length}))
    return false;
  to_submit_ = true;
  peer.told_consumed = message.consumed;
  peer.told_at_put = peer.next;
  peer.told_done = message.done;
  peer.told_ns = now_ns_;
  peer.state_due = false;
  return true;
}

void FabricState::owe_state(Peer& peer) {
  peer.state_due = true;
  owed_ = true;
}

void FabricState::control_arrived(int rail, int peer_rank, std::span<const std::byte> bytes) {
  Peer* found = peers_.find(peer_rank);
  if (found == nullptr) return;
  Peer& peer = *found;
  const auto message = decode(bytes);
  if (!message || !makes_sense(peer, *message)) {
    condemn(peer, rail, "the peer sent a control message that makes no sense");
    return;
  }
  now_ns_ = now();
  take_state(peer, *message);
  take_message(peer, rail, *message);
}

bool FabricState::makes_sense(const Peer& peer, const ControlMessage& message) {
  if (message.consumed > peer.next) return false;
  if (message.kind == Kind::Fence)
    return message.rail < peer.rails.rails.size() && message.peer_rail < peer.links.size();
  return message.kind != Kind::FenceAnswer || message.rail < peer.links.size();
}

void FabricState::take_state(Peer& peer, const ControlMessage& message) {
  peer.peer_done = std::max(peer.peer_done, message.done);
  peer.confirmed_consumed = std::max(peer.confirmed_consumed, message.seen_consumed);
  peer.confirmed_done = std::max(peer.confirmed_done, message.seen_done);
  if (message.consumed > peer.peer_consumed) {
    peer.peer_consumed = message.consumed;
    activate(peer);
  }
}

void FabricState::take_message(Peer& peer, int rail, const ControlMessage& message) {
  Link& link = peer.links[static_cast<std::size_t>(rail)];
  switch (message.kind) {
    case Kind::Hello:
      link.peer_generation = message.number;
      break;
    case Kind::State:
      break;
    case Kind::Ping:
      link.pong_due = true;
      link.pong_number = message.number;
      owed_ = was_asked_ = true;
      break;
    case Kind::Pong:
      if (message.number > static_cast<std::uint64_t>(link.ping_sent_ns)) break;
      if (link.answer_heard_ns < all_polled_ns_) link.answered_before_ns = link.ping_answered_ns;
      link.ping_answered_ns =
          std::max(link.ping_answered_ns, static_cast<std::int64_t>(message.number));
      link.answer_heard_ns = now_ns_;
      link.waiting_since_ns = now_ns_;
      peer.ping_interval_ns = 0;
      break;
    case Kind::Fence: {
      FenceRequest& request = peer.fence_requests[message.rail];
      // An older fence of the same rail is covered by a newer one.
      if (request.open && request.message.number > message.number) break;
      request = {true, rail, message};
      owed_ = true;
      break;
    }
    case Kind::FenceAnswer:
      take_answer(peer, message);
      break;
    case Kind::Goodbye:
      take_goodbye(peer);
      break;
  }
}

/// Whoever leaves has finished all its calls: what rails took for it and was not acknowledged had
/// arrived, or was not needed.
void FabricState::take_goodbye(Peer& peer) {
  if (peer.left) return;
  peer.left = true;
  peer.requeued.clear();
  for (std::uint64_t number = peer.head; number < peer.next; ++number) {
    OpenPut& put = peer.put(number);
    if (put.next_chunk != put.cut.count || put.done_chunks == put.cut.count) continue;
    put.done_chunks = put.cut.count;
    complete(peer, put);
  }
  // Links that are up stay so until the peer closes them: what it sent over them may still be on
  // its way. Those that are down will not come back, and their fences have nothing left to ask.
  for (std::size_t i = 0; i < peer.links.size(); ++i) {
    if (peer.links[i].up) continue;
    peer.links[i].fence.open = false;
    peer.links[i].fence.count = 0;
    condemn(peer, static_cast<int>(i), "the peer has left");
  }
}

void FabricState::send_owed() {
  owed_ = false;
  for (Peer* peer : connected_) {
    for (std::size_t i = 0; i < peer->links.size(); ++i) {
      Link& link = peer->links[i];
      if (!link.up) continue;
      ControlMessage message;
      if (link.hello_due) {
        message.kind = Kind::Hello;
        message.number = link.generation;
        link.hello_due = !send(*peer, static_cast<int>(i), message);
      }
      if (link.pong_due && !link.hello_due) {
        message.kind = Kind::Pong;
        message.number = link.pong_number;
        rails_[i].rail->flush_acknowledgements();
        link.pong_due = !send(*peer, static_cast<int>(i), message);
      }
      owed_ = owed_ || link.hello_due || link.pong_due;
    }
    answer_fences(*peer);
    send_fences(*peer);
    if (!peer->state_due) continue;
    // Where chunks came last, so that the frame acknowledges them as well: a peer that only sends
    // needs both to use its slot again. What came over other rails is acknowledged beside it.
    const int rail = healthy_link(*peer, std::max(peer->last_rail, 0));
    ControlMessage message;
    // Without a link it stays due; the hello of the next link brings it.
    if (rail >= 0 && !send(*peer, rail, message)) owed_ = true;
    const unsigned others = std::exchange(peer->rails_heard, 0) & ~(rail >= 0 ? 1U << rail : 0U);
    for (std::size_t i = 0; others != 0 && i < rails_.size(); ++i) {
      if ((others >> i & 1U) != 0) rails_[i].rail->acknowledge_unanswered();
    }
  }
}

}  // namespace allrail::transport
