// Pipelined chain broadcast (the segmented pipeline of Goglin and Moreaud 2011, with one neighbour
// on either side).
//
// Participant p passes piece after piece from p - 1 on to p + 1: in round r it receives piece
// r - p + 1 and sends piece r - p, so that all links are busy at once. Steps: s + n - 2 for s
// pieces. Bytes per port: m. T = (s + n - 2) * (ts + m/s*tau): for large m the data crosses every
// rail once. The ports of the model are of no use to it. Any n.
#include "coll/broadcast/broadcast.hpp"

namespace allrail::coll::broadcast {

schedule::Exchange chain(int participants, int me, int /*ports*/, int pieces) {
  schedule::Exchange exchange;
  if (participants == 1) return exchange;
  exchange.rounds.resize(static_cast<std::size_t>(pieces + participants - 2));
  for (int piece = 0; piece < pieces; ++piece) {
    const auto round_of_put = static_cast<std::size_t>(me + piece);
    if (me < participants - 1) exchange.rounds[round_of_put].puts.push_back({me + 1, piece, 1});
    if (me > 0) exchange.rounds[round_of_put - 1].awaits.push_back({me - 1, piece, 1});
  }
  return exchange;
}

}  // namespace allrail::coll::broadcast
