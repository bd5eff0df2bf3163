// Recursive doubling, the papers' Standard Exchange (Qian and Afsahi 2007, section 6.1.2; 2008,
// section 5.1.2).
//
// Step i: aligned groups of (k+1)^i participants, which hold the same blocks, come together k + 1
// at a time; everybody exchanges all it has with its counterparts in the k other groups. This needs
// n to be a multiple of (k+1)^i. The remaining steps, the papers' correction steps, let the groups
// wrap around modulo n: a participant of group g, which holds the blocks of groups g - held + 1 to
// g, sends to groups g + held, g + 2*held, ...; the last step carries only what is missing, in even
// shares. Aligned steps are taken only where k divides n - 1: elsewhere sharing out whole groups at
// the end would cost bandwidth (docs/algorithms.md has the proof). Steps: ceil(log_{k+1} n). Blocks
// per port: ceil((n-1)/k). T = steps*ts + ceil((n-1)/k)*m*tau, equal to formula (3) at powers of k
// + 1 and never above formula (4) elsewhere.
#include <algorithm>

#include "coll/allgather/allgather.hpp"

namespace allrail::coll::allgather {
namespace {

/// One step inside aligned groups of `group` that form sets of ports + 1.
schedule::Round aligned_step(int me, int group, int ports) {
  const int set = me / (group * (ports + 1)) * (group * (ports + 1));
  const int own = (me - set) / group;  // my group within the set
  const int place = (me - set) % group;
  schedule::Round round;
  for (int port = 1; port <= ports; ++port) {
    // Ports are relative to the own group, so that no participant is everybody's first peer.
    const int to = (own + port) % (ports + 1);
    const int from = (own + ports + 1 - port) % (ports + 1);
    round.puts.push_back({set + to * group + place, set + own * group, group});
    round.awaits.push_back({set + from * group + place, set + from * group, group});
  }
  return round;
}

}  // namespace

schedule::Exchange recursive_doubling(int participants, int me, int ports) {
  schedule::Exchange exchange;
  int group = 1;
  // ports < participants, checked first, also keeps the product in range.
  while (ports < participants && (participants - 1) % ports == 0 &&
         participants / group % (ports + 1) == 0) {
    exchange.rounds.push_back(aligned_step(me, group, ports));
    group *= ports + 1;
  }
  const int groups = participants / group;
  const auto first_block = [&](int newest, int count) {  // of `count` groups up to `newest`
    return (newest - count + 1 + groups) % groups * group;
  };
  int held = 1;
  while (held < groups) {
    const int share = std::min(held, (groups - held - 1) / ports + 1);
    schedule::Round round;
    int distance = held;
    for (int port = 0; port < ports && distance < groups; ++port) {
      const int count = std::min(share, groups - distance);
      const int to = (me + distance * group) % participants;
      const int from = (me - distance * group + participants) % participants;
      round.puts.push_back({to, first_block(me / group, count), count * group});
      round.awaits.push_back({from, first_block(from / group, count), count * group});
      distance += count;
    }
    exchange.rounds.push_back(std::move(round));
    held = distance;
  }
  return exchange;
}

}  // namespace allrail::coll::allgather
