// Gather and broadcast (Qian and Afsahi 2007, section 6.2.1; 2008, sections 5.1.1 and 5.2.1).
//
// The root is participant 0. For the trees, participants are numbered to base K = k + 1. Two ways
// up:
//   gather_broadcast: the spanning binomial tree for k ports. In round i those with i trailing zero
//     digits, and a digit i that is not zero, send what their subtree gathered (up to K^i blocks)
//     to the participant with that digit zero. w = ceil(log_K n) steps; blocks per port at powers
//     of K: (n-1)/k.
//   direct_gather_broadcast: everybody sends its block to the root, k of them at a time.
//   ceil((n-1)/k)
//     steps, one block per port each.
// The broadcast is the tree downwards, in place of the papers' hardware broadcast; nobody is sent
// what went up from it: its subtree's blocks, or its own one. Any n. T, at powers of K:
//   gather_broadcast: 2w*ts + w*n*m*tau. Other n: docs/algorithms.md.
//   direct_gather_broadcast, every n: (ceil((n-1)/k) + w)*ts + (ceil((n-1)/k) + w*(n-1))*m*tau.
#include <algorithm>

#include "coll/allgather/allgather.hpp"

namespace allrail::coll::allgather {
namespace {

/// What went up from the top of a subtree before the broadcast: all of its blocks, or its own.
enum class Gathered { Subtree, OwnBlock };

/// A level of the tree: subtrees of up to `size` participants, `ports` of them under a parent.
struct TreeLevel {
  int participants;
  int ports;
  long long size;  // 64 bits: size * (ports + 1) may pass the end of int after the last level

  long long above() const { return size * (ports + 1); }
  int subtree(int top) const {
    return static_cast<int>(std::min<long long>(size, participants - top));
  }
  bool is_parent(int one) const { return one % above() == 0; }
  bool is_child(int one) const { return one % size == 0 && !is_parent(one); }
  int parent_of(int child) const { return static_cast<int>(child - child % above()); }
  template <class Visit>
  void for_children_of(int parent, const Visit& visit) const {
    const long long end = std::min<long long>(parent + above(), participants);
    for (long long child = parent + size; child < end; child += size) {
      visit(static_cast<int>(child));
    }
  }
};

schedule::Round gather_in(const TreeLevel& level, int me) {
  schedule::Round round;
  if (level.is_parent(me)) {
    level.for_children_of(me, [&](int child) {
      round.awaits.push_back({child, child, level.subtree(child)});
    });
  } else if (level.is_child(me)) {
    round.puts.push_back({level.parent_of(me), me, level.subtree(me)});
  }
  return round;
}

schedule::Round broadcast_in(const TreeLevel& level, int me, Gathered gathered) {
  schedule::Round round;
  const auto all_but_gathered = [&](int peer, int child) {
    const int known = gathered == Gathered::Subtree ? level.subtree(child) : 1;
    return schedule::Transfer{peer, (child + known) % level.participants,
                              level.participants - known};
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
  schedule::Exchange exchange;
  for (TreeLevel level{participants, ports, 1}; level.size < participants;
       level.size = level.above()) {
    exchange.rounds.push_back(gather_in(level, me));
  }
  append_broadcast(exchange, participants, me, ports, Gathered::Subtree);
  return exchange;
}

schedule::Exchange direct_gather_broadcast(int participants, int me, int ports) {
  schedule::Exchange exchange;
  for (int first = 1; first < participants; first += std::min(ports, participants - first)) {
    const int end = first + std::min(ports, participants - first);
    schedule::Round round;
    if (me == 0) {
      for (int from = first; from < end; ++from) round.awaits.push_back({from, from, 1});
    } else if (me >= first && me < end) {
      round.puts.push_back({0, me, 1});
    }
    exchange.rounds.push_back(std::move(round));
  }
  append_broadcast(exchange, participants, me, ports, Gathered::OwnBlock);
  return exchange;
}

}  // namespace allrail::coll::allgather
