#pragma once

#include <cstddef>
#include <vector>

// What a paper's algorithm does among n participants, in whole blocks: block i is what participant
// i contributes. An exchange knows nothing of bytes or memory; lower.hpp turns it into the schedule
// of one rank.
namespace allrail::schedule {

/// Who the participants are: ranks, nodes, or, of allgathers only, all leaders of all nodes.
enum class Level { Flat, Smp, MultiLeader };

/// Blocks first, first + 1, ..., first + count - 1, modulo n: a transfer may wrap around the end.
struct Transfer {
  int peer;
  int first;
  int count;
  // Both ends of a transfer name the same port. Where one end has several transfers in the round
  // and the other has one, it is the place among the several; -1: the place at either end.
  int port = -1;
};

/// The port of the transfer that stands at `place` in its round.
inline std::size_t port_of(const Transfer& transfer, std::size_t place) {
  return transfer.port < 0 ? place : static_cast<std::size_t>(transfer.port);
}

/// One step of the k-port model. All puts are posted before the awaits. The order of `puts` is the
/// port order where these do not say it. A put sends only blocks that the participant owns or
/// awaited in an earlier round. For every ordered pair (a, b) the puts of a to b in round r are the
/// awaits of b from a in round r, in the same order.
struct Round {
  std::vector<Transfer> puts;
  std::vector<Transfer> awaits;
};

/// Where blocks lie in the memory of participant p. Absolute: block b at position b. Relative
/// (Bruck): position j holds block (p + j) mod n.
enum class Placement { Absolute, Relative };

struct Exchange {
  Placement placement = Placement::Absolute;
  std::vector<Round> rounds;
};

/// An algorithm: the exchange of participant `me` among `participants` with `ports` puts at once.
using ExchangeFunction = Exchange (*)(int participants, int me, int ports);

}  // namespace allrail::schedule
