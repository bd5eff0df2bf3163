// Fence and replay, stalled links, and giving up.
//
// A link fails between two ranks. The sender cannot know what of its chunks in flight has landed,
// or still will: so both ends close the link first (nothing can land any more), then the receiver
// says which of them it has, and exactly the others are sent again. Each end does this for its own
// chunks. All messages may be lost with their link and are repeated until answered.
#include <algorithm>
#include <bit>

#include <fmt/core.h>

#include "lib/base/log.hpp"
#include "transport/fabric_state.hpp"

namespace allrail::transport {

using Kind = ControlMessage::Kind;

namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kCheckInterval = 10 * kMillisecond;
constexpr std::int64_t kFenceInterval = 100 * kMillisecond;
constexpr std::int64_t kFirstPingInterval = 100 * kMillisecond;
constexpr std::int64_t kLastPingInterval = 1000 * kMillisecond;
// Answers may take this long before anything is asked.
constexpr std::int64_t kPatience = 200 * kMillisecond;
constexpr std::int64_t kLeastStall = 500 * kMillisecond;
// A rail that comes and goes would fill the log: of a link's later losses every doubling is told.
constexpr std::uint64_t kLossesTold = 8;
static_assert(std::has_single_bit(kLossesTold));
/// So many links in a row that came up and delivered nothing: the next one would not, either.
constexpr int kMostLossesInVain = 3;

bool unanswered(const Link& link) {
  return link.in_flight > 0 || link.ping_sent_ns > link.ping_answered_ns;
}

std::int64_t stall_limit_ns(const Link& link) {
  std::int64_t limit = std::max(kLeastStall, 8 * link.round_trip.round_trip_ns());
  const double rate = link.rate.bytes_per_second();
  if (rate > 0)
    limit = std::max(
        limit, static_cast<std::int64_t>(4e9 * static_cast<double>(link.in_flight_bytes) / rate));
  return limit;
}

void tell_loss(const Peer& peer, const Link& link, const std::string& rail,
               std::string_view reason) {
  const std::uint64_t losses = link.generation;  // every generation is lost once
  const bool is_told = losses <= kLossesTold || std::has_single_bit(losses);
  const auto level = peer.left || !is_told ? base::Level::Debug : base::Level::Warning;
  if (losses < kLossesTold) {
    base::log(level, "rail {} to rank {} is down: {}", rail, peer.rank, reason);
  } else {
    base::log(level, "rail {} to rank {} is down (loss {}; the next to be told is loss {}): {}",
              rail, peer.rank, losses, std::bit_ceil(losses + 1), reason);
  }
}

}  // namespace

void FabricState::drop_link(Peer& peer, int rail, std::string_view reason) {
  rails_[static_cast<std::size_t>(rail)].rail->close(peer.rank, *this);
  lose_link(peer, rail, reason);
}

void FabricState::close_condemned() {
  // To drop one may condemn others of its peer.
  for (std::size_t i = 0; i < condemned_.size(); ++i) {
    const Condemned link = condemned_[i];
    // Not before now: a rail may have been reporting.
    if (link.peer->left) rails_[static_cast<std::size_t>(link.rail)].rail->forget(link.peer->rank);
    if (link.peer->links[static_cast<std::size_t>(link.rail)].generation == link.generation)
      drop_link(*link.peer, link.rail, link.reason);
  }
  condemned_.clear();
}

/// The link is closed at this end; its chunks wait for the peer's word.
void FabricState::lose_link(Peer& peer, int rail, std::string_view reason) {
  Link& link = peer.links[static_cast<std::size_t>(rail)];
  RailState& state = rails_[static_cast<std::size_t>(rail)];
  if (!link.up) return;
  tell_loss(peer, link, state.rail->name(), reason);
  // With an open fence it was to say what became of an earlier one's.
  if ((link.in_flight > 0 || link.fence.open) && peer.losses_in_vain++ == 0)
    peer.in_vain_since_ns = now_ns_;
  link.up = false;
  link.blocked = link.hello_due = link.pong_due = false;
  link.reason = reason;
  link.last_attempt.clear();
  link.ping_sent_ns = link.ping_answered_ns = link.answered_before_ns = 0;
  PendingFence& fence = link.fence;
  if (!fence.open) fence.count = 0;
  fence.open = !peer.left;
  fence.generation = link.generation;
  // An open fence of another pair of rails needs no word of its own: the connecting end never had
  // that link up, or it would have kept the pair.
  fence.peer_rail = link.peer_rail;
  const auto same_partner = [&](const Link& one) { return one.peer_rail == link.peer_rail; };
  if (std::count_if(peer.links.begin(), peer.links.end(), same_partner) > 1) link.peer_rail = -1;
  for (; link.in_flight > 0; --link.in_flight) {
    const InFlight& record = link.at(0);
    fence.chunks[static_cast<std::size_t>(fence.count++)] = record.chunk;
    state.chunk_ended(record.bytes, now_ns_);
    link.rate.abandoned();
    state.rate.abandoned();
    link.head = (link.head + 1) % kMaxLinkChunks;
  }
  link.in_flight_bytes = 0;
  if (!peer.left) ++state.counters.fences;
  if (peer.left) condemn(peer, rail, "the peer has left");
  // What was told over this link may be lost, and so may fences of other rails.
  owe_state(peer);
  for (Link& other : peer.links) other.fence.next_send_ns = 0;
  pump_needed_ = true;
}

void FabricState::send_fences(Peer& peer) {
  for (std::size_t i = 0; i < peer.links.size(); ++i) {
    PendingFence& fence = peer.links[i].fence;
    if (!fence.open || now_ns_ < fence.next_send_ns) continue;
    // Another carrier every time: one of them may be silent without our knowing yet.
    const int carrier = healthy_link(peer, fence.last_carrier + 1);
    if (carrier < 0) continue;
    ControlMessage message;
    message.kind = Kind::Fence;
    message.rail = static_cast<std::uint8_t>(i);
    message.peer_rail = static_cast<std::uint8_t>(fence.peer_rail);
    message.number = fence.generation;
    message.count = static_cast<std::uint16_t>(fence.count);
    for (int c = 0; c < fence.count; ++c) {
      const ChunkName& chunk = fence.chunks[static_cast<std::size_t>(c)];
      message.immediates[static_cast<std::size_t>(c)] = make_immediate(chunk.put, chunk.index);
    }
    fence.last_carrier = carrier;
    if (send(peer, carrier, message)) fence.next_send_ns = now_ns_ + kFenceInterval;
  }
}

void FabricState::answer_fences(Peer& peer) {
  for (FenceRequest& request : peer.fence_requests) {
    if (!request.open) continue;
    request.open = false;
    const int rail = request.message.peer_rail;
    const Link& link = peer.links[static_cast<std::size_t>(rail)];
    // A link to another rail of the peer, or one that is younger than the fence, is another one. A
    // fence never travels on the link that it is about, so what carried it is younger, too.
    const bool other = link.peer_rail != request.message.rail ||
                       link.peer_generation > request.message.number || request.carrier == rail;
    if (link.up && !other) drop_link(peer, rail, "the peer reported it dead");
    ControlMessage answer;
    answer.kind = Kind::FenceAnswer;
    answer.rail = request.message.rail;
    answer.peer_rail = request.message.peer_rail;
    answer.number = request.message.number;
    answer.count = request.message.count;
    for (std::size_t c = 0; c < request.message.count; ++c)
      if (peer.arrivals.holds(request.message.immediates[c])) answer.mask |= std::uint64_t{1} << c;
    const int carrier = healthy_link(peer, request.carrier);
    // If it does not get through, the peer asks again.
    if (carrier >= 0) send(peer, carrier, answer);
  }
}

void FabricState::take_answer(Peer& peer, const ControlMessage& message) {
  PendingFence& fence = peer.links[message.rail].fence;
  if (!fence.open || fence.generation != message.number || fence.count != message.count) return;
  fence.open = false;
  peer.losses_in_vain = 0;
  for (int c = 0; c < fence.count; ++c) {
    const ChunkName& chunk = fence.chunks[static_cast<std::size_t>(c)];
    // How long a part took that was lost and sent again says nothing of the rails.
    if (Observation* observed = observation_of(peer.put(chunk.put))) *observed = {};
    if ((message.mask >> c & 1) != 0)
      chunk_done(peer, chunk);
    else
      peer.requeued.push_back(chunk);
  }
  std::sort(peer.requeued.begin(), peer.requeued.end(), [](const ChunkName& a, const ChunkName& b) {
    return a.put != b.put ? a.put < b.put : a.index < b.index;
  });
  fence.count = 0;
  activate(peer);
}

void FabricState::check_peers() {
  next_check_ns_ = now_ns_ + kCheckInterval;
  for (Peer* peer : connected_) {
    check_no_link(*peer);
    check_losses_in_vain(*peer);
    for (const Link& link : peer->links) owed_ = owed_ || link.fence.open;
    const auto up = std::count_if(peer->links.begin(), peer->links.end(),
                                  [](const Link& link) { return link.up; });
    // With one link there is no sibling that could tell silence from slowness.
    if (up < 2) continue;
    if (awaits_answer(*peer)) ping(*peer);
    check_stalls(*peer);
  }
}

/// Whether the peer owes us an answer for so long that a message may have been lost.
bool FabricState::awaits_answer(const Peer& peer) const {
  for (const Link& link : peer.links) {
    if (!link.up) continue;
    if (link.ping_sent_ns > link.ping_answered_ns) return true;
    if (link.in_flight > 0 && now_ns_ - link.waiting_since_ns > kPatience) return true;
  }
  const bool unconfirmed =
      peer.told_consumed > peer.confirmed_consumed || peer.told_done > peer.confirmed_done;
  if (unconfirmed && now_ns_ - peer.told_ns > kPatience) return true;
  return peer.next > peer.admitted();
}

void FabricState::ping(Peer& peer) {
  if (now_ns_ < peer.next_ping_ns) return;
  peer.ping_interval_ns =
      std::clamp(2 * peer.ping_interval_ns, kFirstPingInterval, kLastPingInterval);
  peer.next_ping_ns = now_ns_ + peer.ping_interval_ns;
  for (std::size_t i = 0; i < peer.links.size(); ++i) {
    Link& link = peer.links[i];
    if (!link.up) continue;
    ControlMessage message;
    message.kind = Kind::Ping;
    message.number = static_cast<std::uint64_t>(now_ns_);
    const bool was_waiting = unanswered(link);
    // A refused ping counts as sent: a link that takes nothing is no better than a silent one.
    send(peer, static_cast<int>(i), message);
    if (!was_waiting) link.waiting_since_ns = now_ns_;
    link.ping_sent_ns = now_ns_;
  }
}

/// A link is given up when the same peer answers over others, twice. Its answers to one question
/// leave one after the other, and it may lose its core between two of them; one to a question that
/// was asked later leaves when they all have. What it said over this link may be here and not read
/// yet, since most looks are at one link: so an answer counts when all have been looked at since
/// then. Who looks as rarely as it asks has a newer one at every look.
void FabricState::check_stalls(Peer& peer) {
  for (std::size_t i = 0; i < peer.links.size(); ++i) {
    Link& link = peer.links[i];
    const std::int64_t limit_ns = stall_limit_ns(link);
    if (!link.up || !unanswered(link) || now_ns_ - link.waiting_since_ns <= limit_ns) continue;
    // Any sign of life takes it back.
    const bool is_accused = link.accused_ns > link.waiting_since_ns;
    const std::int64_t asked_ns = is_accused ? link.accused_ns : link.waiting_since_ns + limit_ns;
    const bool sibling_answered =
        std::any_of(peer.links.begin(), peer.links.end(), [&](const Link& sibling) {
          const std::int64_t answered_ns = sibling.answer_heard_ns < all_polled_ns_
                                               ? sibling.ping_answered_ns
                                               : sibling.answered_before_ns;
          return &sibling != &link && sibling.up && answered_ns > asked_ns;
        });
    if (!sibling_answered) continue;
    if (!is_accused) {
      link.accused_ns = now_ns_;
      continue;
    }
    drop_link(peer, static_cast<int>(i),
              fmt::format("no answer for {} ms while another rail answers",
                          (now_ns_ - link.waiting_since_ns) / kMillisecond));
  }
}

/// A peer that never answered is waited for, since it may not have entered yet; but if not even
/// an address of it could be reached over any pair of rails, it will not come.
bool FabricState::unreachable(const Peer& peer) const {
  return !peer.was_connected && connects_to(peer) && peer.probe.none_answers();
}

/// Links come up and go down again, and nothing gets through: as good as none.
void FabricState::check_losses_in_vain(const Peer& peer) {
  const std::int64_t passed_ns = now_ns_ - peer.in_vain_since_ns;
  if (peer.left || peer.losses_in_vain < kMostLossesInVain || passed_ns < options_.no_link_limit_ns)
    return;
  give_up(peer.rank,
          lost_rails_text(peer, fmt::format("has lost {} rails in a row to rank {} on host {} in "
                                            "{} ms, and none delivered anything",
                                            peer.losses_in_vain, peer.rank, peer.rails.host,
                                            passed_ns / kMillisecond)));
}

void FabricState::check_no_link(Peer& peer) {
  const bool needed = peer.head < peer.next || peer.arrivals.missing() > 0;
  if (!(peer.was_connected || unreachable(peer)) || !needed || healthy_link(peer, 0) >= 0) {
    peer.no_link_since_ns = -1;
    return;
  }
  if (peer.left) {
    give_up(peer.rank, fmt::format("rank {} still waits for rank {}, which has left the job: its "
                                   "communicator was destroyed; every rank must make the same "
                                   "collective calls",
                                   rank_, peer.rank));
    return;
  }
  if (peer.no_link_since_ns < 0) peer.no_link_since_ns = now_ns_;
  const std::int64_t limit_ns =
      peer.was_connected ? options_.no_link_limit_ns : options_.connect_limit_ns;
  if (now_ns_ - peer.no_link_since_ns < limit_ns) return;
  give_up(peer.rank, no_link_text(peer, now_ns_ - peer.no_link_since_ns));
}

}  // namespace allrail::transport
