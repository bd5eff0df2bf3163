// Standard Exchange alltoall (Qian and Afsahi 2008).
//
// Participants are numbered to base K = k + 1. In step i a participant exchanges with the k others
// of its group, who differ from it in digit i: each is sent all blocks for participants with its
// digit i. A block so takes over the digits of its receiver one by one. Steps: w = log_K n. Blocks
// per port and step: n/K. T = w * (ts + n/K*m*tau).
//
// n that is no power of K is numbered to mixed bases instead of the paper's correction steps: the
// largest divisors of what is left up to K, then prime factors. A digit to base b takes
// ceil((b-1)/k) steps, with n/b blocks per port each; for a prime n > K that is the direct
// algorithm.
#include <algorithm>

#include "coll/alltoall/alltoall.hpp"

namespace allrail::coll::alltoall {
namespace {

/// The largest divisor of `rest` that one step can do, else its smallest prime factor.
int next_base(int rest, int ports) {
  for (int base = std::min(rest, ports + 1); base > 1; --base) {
    if (rest % base == 0) return base;
  }
  for (int prime = 2; prime < rest; ++prime) {
    if (rest % prime == 0) return prime;
  }
  return rest;
}

std::vector<int> bases_of(int participants, int ports) {
  std::vector<int> bases;
  for (int rest = participants; rest > 1; rest /= bases.back()) {
    bases.push_back(next_base(rest, ports));
  }
  return bases;
}

/// What `sender` has for those with digit `digit` to base `base` at `place`: blocks of everybody
/// who has its upper digits, for everybody who has its lower digits.
std::vector<schedule::PairBlock> blocks_of(int sender, int place, int base, int digit,
                                           int participants) {
  std::vector<schedule::PairBlock> blocks;
  for (int from = sender / place * place; from < sender / place * place + place; ++from) {
    for (int to = sender % place + digit * place; to < participants; to += place * base) {
      blocks.push_back({from, to});
    }
  }
  return blocks;
}

}  // namespace

schedule::PairExchange recursive_doubling(int participants, int me, int ports) {
  schedule::PairExchange exchange;
  int place = 1;
  for (const int base : bases_of(participants, ports)) {
    const int mine = me / place % base;
    const auto with_digit = [&](int digit) { return me + (digit - mine) * place; };
    for (int first = 1; first < base; first += std::min(ports, base - first)) {
      schedule::PairRound round;
      for (int i = first; i < first + std::min(ports, base - first); ++i) {
        const int to = (mine + i) % base;
        const int from = with_digit((mine - i + base) % base);
        round.puts.push_back({with_digit(to), blocks_of(me, place, base, to, participants)});
        round.awaits.push_back({from, blocks_of(from, place, base, mine, participants)});
      }
      exchange.rounds.push_back(std::move(round));
    }
    place *= base;
  }
  return exchange;
}

}  // namespace allrail::coll::alltoall
