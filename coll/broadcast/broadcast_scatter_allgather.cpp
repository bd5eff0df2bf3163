// Broadcast as a scatter and an allgather (van de Geijn; Qian and Afsahi's allgathers build on the
// same idea).
//
// There is a piece for every participant. The root sends participant p piece p, k of them at a
// time, then all pass pieces around a ring: in round i participant p sends p + 1 the piece of
// distance i, p - i. The root has everything, so nobody sends to it. Steps: ceil((n-1)/k) + n - 1.
// Bytes per port: of the root (n-1)/n*m for the scatter over k ports and as much for the ring, of
// the others (n-1)/n*m. T = (ceil((n-1)/k) + n - 1) * (ts + m/n*tau). Any n.
#include <algorithm>

#include "coll/broadcast/broadcast.hpp"

namespace allrail::coll::broadcast {

schedule::Exchange scatter_allgather(int participants, int me, int ports, int pieces) {
  schedule::Exchange exchange;
  for (int first = 1; first < participants; first += std::min(ports, participants - first)) {
    const int end = first + std::min(ports, participants - first);
    schedule::Round round;
    if (me == 0) {
      for (int to = first; to < end; ++to) round.puts.push_back({to, to, 1, to - first});
    } else if (me >= first && me < end) {
      round.awaits.push_back({0, me, 1, me - first});
    }
    exchange.rounds.push_back(std::move(round));
  }
  const auto piece = [&](int of, int distance) {
    return ((of - distance) % pieces + pieces) % pieces;
  };
  for (int i = 0; i < participants - 1; ++i) {
    schedule::Round round;
    if (me < participants - 1) round.puts.push_back({me + 1, piece(me, i), 1});
    if (me > 0) round.awaits.push_back({me - 1, piece(me - 1, i), 1});
    exchange.rounds.push_back(std::move(round));
  }
  return exchange;
}

}  // namespace allrail::coll::broadcast
