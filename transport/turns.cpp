// Which rail a put takes that is not cut.
//
// Puts take the rails by turns, which fills rails alike. In a stream that goes one way a rail that
// is slower than the others, or that others use, falls behind, and then everybody waits for it: a
// rail that has more to deliver than another when its turn comes is passed over. Puts that are
// answered are waited for, and looked for on the rail whose turn it is: there a rail that is full
// gives up whole turns (turn_shares.hpp).
#include <algorithm>
#include <bit>
#include <utility>

#include "transport/fabric_state.hpp"

namespace allrail::transport {

namespace {

// Where rails are unlike turns are so short that the ring of sixteen calls holds three.
constexpr int kTurnPuts = 4;

}  // namespace

int FabricState::choose_small(Peer& peer, const OpenPut& put, std::uint32_t bytes) {
  const int links = static_cast<int>(peer.links.size());
  RailSet usable;
  RailSet near;
  for (int i = 0; i < links; ++i) {
    const Link& link = peer.links[static_cast<std::size_t>(i)];
    if (!link.usable()) continue;
    usable.add(i);
    if (link.is_near) near.add(i);
  }
  if (usable.count == 0) return -1;
  const int first = turn_of(peer, put, bytes, near.count != 0 ? near : usable);
  for (int i = 0; i < links; ++i) {
    const int rail = (first + i) % links;
    const auto at = static_cast<std::size_t>(rail);
    // Small puts may fill the queue: their bytes say little about the room that they need.
    if (has_room(peer.links[at], rails_[at], std::max<std::uint32_t>(bytes, 32 * 1024)))
      return rail;
  }
  return -1;
}

/// Of a set of rails, that whose turn it is, or the one that has it instead. Ports of a step, and
/// steps, take turns, so that a call of small puts uses all rails, or all that end near to who
/// receives.
int FabricState::turn_of(Peer& peer, const OpenPut& put, std::uint32_t bytes, RailSet rails) {
  const auto port = static_cast<unsigned>(put.port);
  unsigned others = rails.bits;
  for (unsigned skip = port % rails.count; skip != 0; --skip) others &= others - 1;
  const int in_turn = std::countr_zero(others);
  if (rails.count == 1 || !takes_turns(bytes)) return in_turn;
  if (put.coalesce) return turn_of_stream(peer, put, in_turn, rails.bits);
  return turn_shares_.rail_for(in_turn, port / rails.count, rails.bits);
}

/// Whether its rail follows from TurnShares.
bool FabricState::has_shared_turn(const OpenPut& put) const {
  return rails_.size() > 1 && takes_turns(put.cut.put_bytes) && !put.striped && !put.coalesce;
}

/// The rail whose turn it is, or one that is done earlier with what it has and one more turn. Not
/// asked for every put, since it costs system calls, and since the receiver looks where the last
/// put of such a port came from.
int FabricState::turn_of_stream(Peer& peer, const OpenPut& put, int in_turn, unsigned rails) {
  StreamTurn& turn = peer.turn;
  const bool is_new = std::exchange(turn.port, put.port) != put.port;
  if (is_new || ++turn.puts == kTurnPuts) turn.puts = 0;
  const bool goes_on = turn.puts != 0 || turn.is_trial || !peer.queues.are_unlike(rails);
  if (!is_new && goes_on && (rails >> turn.rail & 1U) != 0) return turn.rail;
  look_at_queues(peer);
  const Queues::Choice choice =
      peer.queues.choose(in_turn, rails, kTurnPuts * put.cut.put_bytes, is_new);
  turn.is_trial = choice.is_trial;
  turn.rail = choice.rail;
  return turn.rail;
}

void FabricState::look_at_queues(Peer& peer) {
  Queues::Bytes posted{};
  Queues::Bytes left{};
  for (std::size_t i = 0; i < peer.links.size(); ++i) {
    const Link& link = peer.links[i];
    posted[i] = link.posted_bytes;
    // Peers acknowledge such puts late, but more than they leave open is not under way.
    left[i] = link.in_flight_bytes;
    if (left[i] == 0) continue;
    const std::int64_t bytes = rails_[i].rail->undelivered_bytes(peer.rank);
    if (bytes >= 0) left[i] = std::min(left[i], static_cast<std::uint64_t>(bytes));
  }
  peer.queues.look(posted, left, now());
}

}  // namespace allrail::transport
