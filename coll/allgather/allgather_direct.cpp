// Direct allgather (Qian and Afsahi 2007, section 6.1.1; 2008, section 5.1.2).
//
// In round i every participant sends its own block to the next k participants, at distances ik + 1
// to ik + k modulo n. Nothing is forwarded, so it suits large blocks; it talks to everybody, so it
// suits few participants. Any n. Steps: ceil((n-1)/k). Blocks per port: ceil((n-1)/k). T =
// ceil((n-1)/k) * (ts + m*tau).
#include <algorithm>

#include "coll/allgather/allgather.hpp"

namespace allrail::coll::allgather {

schedule::Exchange direct(int participants, int me, int ports) {
  schedule::Exchange exchange;
  int distance = 1;
  while (distance < participants) {
    schedule::Round round;
    const int end = distance + std::min(participants - distance, ports);
    for (; distance < end; ++distance) {
      const int before = (me - distance + participants) % participants;
      round.puts.push_back({(me + distance) % participants, me, 1});
      round.awaits.push_back({before, before, 1});
    }
    exchange.rounds.push_back(std::move(round));
  }
  return exchange;
}

}  // namespace allrail::coll::allgather
