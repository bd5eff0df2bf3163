// Bruck allgather (Qian and Afsahi 2007, section 6.1.3; 2008, section 5.1.2; after Bruck et al.
// 1997).
//
// Participant p holds blocks p, p + 1, ..., p + held - 1 (modulo n), its own on top. In a round it
// sends all of them to participants p - held, p - 2*held, ..., p - k*held and appends what arrives,
// so held grows by a factor of k + 1. The last round is partial unless n is a power of k + 1: only
// the missing n - held blocks are sent, in even shares over the ports, each from the top. The
// paper's final shift is left to the copy out, which knows every block's place. Steps:
// ceil(log_{k+1} n). Blocks per port: ceil((n-1)/k). T = steps*ts + ceil((n-1)/k)*m*tau. Any n.
#include <algorithm>

#include "coll/allgather/allgather.hpp"

namespace allrail::coll::allgather {

schedule::Exchange bruck(int participants, int me, int ports) {
  schedule::Exchange exchange{schedule::Placement::Relative, {}};
  int held = 1;
  while (held < participants) {
    const int missing = participants - held;
    // What one port carries. It divides missing by ports, rounded up without overflow.
    const int share = std::min(held, (missing - 1) / ports + 1);
    schedule::Round round;
    int distance = held;
    for (int port = 0; port < ports && distance < participants; ++port) {
      const int count = std::min(share, participants - distance);
      const int from = (me + distance) % participants;
      round.puts.push_back({(me - distance + participants) % participants, me, count});
      round.awaits.push_back({from, from, count});
      distance += count;
    }
    exchange.rounds.push_back(std::move(round));
    held = distance;
  }
  return exchange;
}

}  // namespace allrail::coll::allgather
