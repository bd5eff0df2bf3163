// Broadcast down a spanning binomial tree for k ports (Qian and Afsahi 2008, section 5.2.1, there
// with the hardware broadcast of its machine).
//
// The tree of coll/gather/gather_binomial.cpp downwards, with all of the data on every edge. Steps:
// w = ceil(log_{k+1} n). Bytes per port: w*m. T = w * (ts + m*tau). Any n.
#include <algorithm>

#include "coll/broadcast/broadcast.hpp"
#include "coll/schedule/tree.hpp"

namespace allrail::coll::broadcast {

schedule::Exchange binomial(int participants, int me, int ports, int pieces) {
  schedule::Exchange exchange;
  for (schedule::TreeLevel level{participants, ports, 1}; level.size < participants;
       level.size = level.above()) {
    schedule::Round round;
    if (level.is_parent(me)) {
      level.for_children_of(me, [&](int child) {
        round.puts.push_back({child, 0, pieces, level.port_of(child)});
      });
    } else if (level.is_child(me)) {
      round.awaits.push_back({level.parent_of(me), 0, pieces, level.port_of(me)});
    }
    exchange.rounds.push_back(std::move(round));
  }
  std::ranges::reverse(exchange.rounds);
  return exchange;
}

}  // namespace allrail::coll::broadcast
