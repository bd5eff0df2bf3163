// Gather and broadcast (Qian and Afsahi 2007, section 6.2.1; 2008, sections 5.1.1 and 5.2.1).
//
// The root is participant 0. For the trees, participants are numbered to base K = k + 1. Two ways
// up:
//   gather_broadcast: coll/gather/gather_binomial.cpp. w = ceil(log_K n) steps; blocks per port at
//     powers of K: (n-1)/k.
//   direct_gather_broadcast: coll/gather/gather_direct.cpp. ceil((n-1)/k) steps, one block per port
//     each.
// The broadcast is the tree downwards, in place of the papers' hardware broadcast; nobody is sent
// what went up from it: its subtree's blocks, or its own one. Any n. T, at powers of K:
//   gather_broadcast: 2w*ts + w*n*m*tau. Other n: docs/algorithms.md.
//   direct_gather_broadcast, every n: (ceil((n-1)/k) + w)*ts + (ceil((n-1)/k) + w*(n-1))*m*tau.
#include <algorithm>

#include "coll/allgather/allgather.hpp"
#include "coll/schedule/tree.hpp"

namespace allrail::coll::allgather {
namespace {

/// What went up from the top of a subtree before the broadcast: all of its blocks, or its own.
enum class Gathered { Subtree, OwnBlock };

using schedule::TreeLevel;

schedule::Round broadcast_in(const TreeLevel& level, int me, Gathered gathered) {
  schedule::Round round;
  const auto all_but_gathered = [&](int peer, int child) {
    const int known = gathered == Gathered::Subtree ? level.subtree(child) : 1;
    return schedule::Transfer{peer, (child + known) % level.participants,
                              level.participants - known, level.port_of(child)};
  };
  if (level.is_parent(me)) {
    level.for_children_of(me,
                          [&](int child) { round.puts.push_back(all_but_gathered(child, child)); });
  } else if (level.is_child(me)) {
    round.awaits.push_back(all_but_gathered(level.parent_of(me), me));
  }
  return round;
}

/// The rounds of the broadcast, from the root's down.
void append_broadcast(schedule::Exchange& exchange, int participants, int me, int ports,
                      Gathered gathered) {
  const auto first = static_cast<std::ptrdiff_t>(exchange.rounds.size());
  for (TreeLevel level{participants, ports, 1}; level.size < participants;
       level.size = level.above()) {
    exchange.rounds.push_back(broadcast_in(level, me, gathered));
  }
  std::reverse(exchange.rounds.begin() + first, exchange.rounds.end());
}

}  // namespace

schedule::Exchange gather_broadcast(int participants, int me, int ports) {
  schedule::Exchange exchange = schedule::gather_up_tree(participants, me, ports);
  append_broadcast(exchange, participants, me, ports, Gathered::Subtree);
  return exchange;
}

schedule::Exchange direct_gather_broadcast(int participants, int me, int ports) {
  schedule::Exchange exchange = schedule::gather_at_root(participants, me, ports);
  append_broadcast(exchange, participants, me, ports, Gathered::OwnBlock);
  return exchange;
}

}  // namespace allrail::coll::allgather
