// Which rails of a peer the connecting end tries, which it is linked to, and what is said if no
// pair of rails answers.
//
// The lower rank of two connects and so decides; the higher one accepts whichever pair comes. What
// the connecting end had up once, it keeps, so that only the accepting end may ever see a rail
// change its partner: when an attempt had come through on its side alone.
#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "lib/base/error.hpp"
#include "transport/fabric_state.hpp"

namespace allrail::transport {

namespace {

void add_reason(std::string& reasons, const std::string& pair, const std::string& reason) {
  reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", pair, reason);
}

}  // namespace

RailPair FabricState::pair_of(const Peer& peer, int rail, int peer_rail) const {
  return connects_to(peer) ? RailPair{rail, peer_rail} : RailPair{peer_rail, rail};
}

void FabricState::connect(int rank, const PeerRails& rails) {
  if (rank < 0 || rank >= size_ || rank == rank_ || rails.pairs.empty() ||
      rails.rails.size() > kMaxRails)
    base::fail(
        Code::InvalidArgument,
        "rank {} cannot connect to rank {} of {}, which has {} rails, over {} pairs of rails",
        rank_, rank, size_, rails.rails.size(), rails.pairs.size());
  if (peers_.find(rank) != nullptr) return;
  Peer& peer = peers_.make(rank);
  peer.rank = rank;
  peer.rails = rails;
  peer.links.resize(rails_.size());
  peer.fence_requests.resize(rails.rails.size());
  peer.pair_reasons.resize(rails.pairs.size(), "not tried yet");
  peer.queue.resize(kPutQueue);
  peer.requeued.reserve(rails_.size() * kMaxLinkChunks);
  connected_.push_back(&peer);
  active_.reserve(connected_.size());
  peer.probe = PairProbe(rails.pairs);
  peer.pair_count = static_cast<int>(peer.probe.assigned().size());
  if (connects_to(peer)) return assign_pairs(peer);
  for (const RailPair& pair : rails.pairs) want_link(peer, pair.higher, pair.lower);
}

void FabricState::want_link(const Peer& peer, int rail, int peer_rail) {
  Rail& mine = *rails_[static_cast<std::size_t>(rail)].rail;
  if (peer.pair_count == 1) mine.set_only_link(peer.rank);
  mine.connect(peer.rank, peer.rails.rails[static_cast<std::size_t>(peer_rail)].address);
}

void FabricState::try_pairs() {
  probes_due_ = false;
  for (Peer* peer : connected_) {
    if (!std::exchange(peer->probe_due, false) || peer->left) continue;
    assign_pairs(*peer);
  }
}

void FabricState::assign_pairs(Peer& peer) {
  std::array<int, kMaxRails> targets{};
  targets.fill(-1);
  for (const RailPair& pair : peer.probe.assigned())
    targets[static_cast<std::size_t>(pair.lower)] = pair.higher;
  for (std::size_t i = 0; i < peer.links.size(); ++i) {
    Link& link = peer.links[i];
    if (targets[i] == link.target) continue;
    link.target = targets[i];
    if (link.target < 0)
      rails_[i].rail->forget(peer.rank);
    else
      want_link(peer, static_cast<int>(i), link.target);
  }
}

/// A link came up between these two rails.
void FabricState::take_pair(Peer& peer, int rail, int peer_rail) {
  Link& link = peer.links[static_cast<std::size_t>(rail)];
  link.peer_rail = std::clamp(peer_rail, 0, static_cast<int>(peer.rails.rails.size()) - 1);
  link.is_near = peer.rails.rails[static_cast<std::size_t>(link.peer_rail)].is_near;
  if (link.peer_rail != peer_rail) condemn(peer, rail, "the peer has no rail of that number");
  for (std::size_t i = 0; i < peer.links.size(); ++i) {
    Link& other = peer.links[i];
    if (&other == &link || other.peer_rail != link.peer_rail) continue;
    // The peer gave up that attempt, or it would not have made another one.
    if (other.up)
      condemn(peer, static_cast<int>(i), "the peer's rail took another partner");
    else
      other.peer_rail = -1;
  }
  if (!connects_to(peer)) return;
  peer.probe.went_up(pair_of(peer, rail, link.peer_rail));
  peer.probe_due = probes_due_ = true;
}

void FabricState::link_answered(int rail, int peer_rank) {
  Peer* found = peers_.find(peer_rank);
  if (found == nullptr) return;
  Peer& peer = *found;
  peer.probe.answered(pair_of(peer, rail, peer.links[static_cast<std::size_t>(rail)].target));
}

void FabricState::pair_failed(Peer& peer, int rail, std::string_view reason) {
  const Link& link = peer.links[static_cast<std::size_t>(rail)];
  if (!connects_to(peer) || link.target < 0) return;
  const RailPair pair = pair_of(peer, rail, link.target);
  peer.probe.failed(pair);
  peer.probe_due = probes_due_ = true;
  const auto at = std::ranges::find(peer.rails.pairs, pair);
  if (at == peer.rails.pairs.end()) return;
  peer.pair_reasons[static_cast<std::size_t>(at - peer.rails.pairs.begin())] = reason;
}

std::string FabricState::pair_text(const Peer& peer, int rail, int peer_rail) const {
  return fmt::format("{} to {}", rails_[static_cast<std::size_t>(rail)].rail->name(),
                     peer.rails.rails[static_cast<std::size_t>(peer_rail)].name);
}

/// `what` happened to the rails to a peer that was connected, and why each of them went down.
std::string FabricState::lost_rails_text(const Peer& peer, const std::string& what) const {
  std::string reasons;
  for (std::size_t i = 0; i < peer.links.size(); ++i) {
    const Link& link = peer.links[i];
    const int partner = link.peer_rail >= 0 ? link.peer_rail : link.target;
    if (partner < 0) continue;
    const std::string since = link.last_attempt.empty() ? "" : ", and since: " + link.last_attempt;
    add_reason(reasons, pair_text(peer, static_cast<int>(i), partner), link.reason + since);
  }
  return fmt::format("rank {} on host {} {} ({}); check the network between the two hosts", rank_,
                     options_.host, what, reasons);
}

std::string FabricState::no_link_text(const Peer& peer, std::int64_t without_ns) const {
  const std::string what = fmt::format("has had no rail to rank {} on host {} for {} ms", peer.rank,
                                       peer.rails.host, without_ns / 1'000'000);
  if (peer.was_connected) return lost_rails_text(peer, what);
  std::string reasons;
  for (std::size_t i = 0; i < peer.rails.pairs.size(); ++i) {
    const RailPair& pair = peer.rails.pairs[i];
    add_reason(reasons, pair_text(peer, pair.lower, pair.higher), peer.pair_reasons[i]);
  }
  return fmt::format(
      "rank {} on host {} {}: no pair of their rails answers ({}); check the network between the "
      "two hosts, name rails that reach each other with ALLRAIL_RAILS, or say with "
      "ALLRAIL_RAIL_PAIRS which pairs do",
      rank_, options_.host, what, reasons);
}

}  // namespace allrail::transport
