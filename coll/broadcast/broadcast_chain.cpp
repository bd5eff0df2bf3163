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
  for (int r = 0; r < pieces + participants - 2; ++r) {
    schedule::Round round;
    const int sent = r - me;
    const int received = r - me + 1;
    if (me < participants - 1 && sent >= 0 && sent < pieces) {
      round.puts.push_back({me + 1, sent, 1});
    }
    if (me > 0 && received >= 0 && received < pieces) {
      round.awaits.push_back({me - 1, received, 1});
    }
    exchange.rounds.push_back(std::move(round));
  }
  return exchange;
}

}  // namespace allrail::coll::broadcast
