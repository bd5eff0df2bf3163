// Direct alltoall (Qian and Afsahi 2008).
//
// In step i participant p sends its blocks to p + i*k + 1, ..., p + i*k + k and receives those of p
// - i*k - 1, ..., so that nobody is sent to by two at once through the same port. Steps:
// ceil((n-1)/k), one block per port each. T = ceil((n-1)/k) * (ts + m*tau). Any n.
#include <algorithm>

#include "coll/alltoall/alltoall.hpp"

namespace allrail::coll::alltoall {

schedule::PairExchange direct(int participants, int me, int ports) {
  schedule::PairExchange exchange;
  for (int first = 1; first < participants; first += std::min(ports, participants - first)) {
    const int end = first + std::min(ports, participants - first);
    schedule::PairRound round;
    for (int distance = first; distance < end; ++distance) {
      const int to = (me + distance) % participants;
      const int from = (me - distance + participants) % participants;
      round.puts.push_back({to, {{me, to}}});
      round.awaits.push_back({from, {{from, me}}});
    }
    exchange.rounds.push_back(std::move(round));
  }
  return exchange;
}

}  // namespace allrail::coll::alltoall
