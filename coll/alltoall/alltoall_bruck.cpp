// Bruck alltoall (Bruck et al. 1997 in the k-port form of Qian and Afsahi 2008).
//
// A block that has d places to go, counted upwards around the participants, travels along the
// digits of d to base K = k + 1: in step i it goes x*K^i places where x is digit i, by port x. The
// rotations before and after of the original are done by the copies into and out of the regions.
// Steps: w = ceil(log_K n). Blocks per port and step at powers of K: n/K. T = w * (ts + n/K*m*tau).
// Any n.
#include "coll/alltoall/alltoall.hpp"

namespace allrail::coll::alltoall {
namespace {

/// The blocks that `sender` sends in the step of digit `place` by port `digit`: of every distance
/// with that digit, having travelled the digits below.
std::vector<schedule::PairBlock> blocks_of(int sender, long long place, int digit, int ports,
                                           int participants) {
  std::vector<schedule::PairBlock> blocks;
  for (long long distance = digit * place; distance < participants; ++distance) {
    if (distance / place % (ports + 1) != digit) continue;
    const long long travelled = distance % place;
    const long long from = (sender - travelled + participants) % participants;
    blocks.push_back({static_cast<int>(from), static_cast<int>((from + distance) % participants)});
  }
  return blocks;
}

}  // namespace

schedule::PairExchange bruck(int participants, int me, int ports) {
  schedule::PairExchange exchange;
  for (long long place = 1; place < participants; place *= ports + 1) {
    schedule::PairRound round;
    for (int digit = 1; digit <= ports && digit * place < participants; ++digit) {
      const auto hop = digit * place;
      const int to = static_cast<int>((me + hop) % participants);
      const int from = static_cast<int>((me - hop + participants) % participants);
      round.puts.push_back({to, blocks_of(me, place, digit, ports, participants)});
      round.awaits.push_back({from, blocks_of(from, place, digit, ports, participants)});
    }
    exchange.rounds.push_back(std::move(round));
  }
  return exchange;
}

}  // namespace allrail::coll::alltoall
