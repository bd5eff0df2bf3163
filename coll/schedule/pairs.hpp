#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "coll/schedule/contents.hpp"
#include "coll/schedule/schedule.hpp"
#include "coll/schedule/shape.hpp"

// Collectives in which every participant has a block for every other: what an algorithm does among
// n participants, and how it becomes the schedule of one rank.
namespace allrail::schedule {

/// What participant `from` has for participant `to`.
struct PairBlock {
  int from;
  int to;

  friend bool operator==(const PairBlock&, const PairBlock&) = default;
};

/// Blocks that travel together, in this order on both sides.
struct PairTransfer {
  int peer;
  std::vector<PairBlock> blocks;
};

/// One step of the k-port model, with the rules of Round: a put sends only blocks that the
/// participant brought or awaited in an earlier round, and nothing twice. All participants have as
/// many puts, and as many awaits, in a round, each of as many blocks, and put i of one is await i
/// of its peer: so a sender knows where its peer awaits what it puts.
struct PairRound {
  std::vector<PairTransfer> puts;
  std::vector<PairTransfer> awaits;
};

struct PairExchange {
  std::vector<PairRound> rounds;
};

/// An algorithm: the exchange of participant `me` among `participants` with `ports` puts at once.
using PairExchangeFunction = PairExchange (*)(int participants, int me, int ports);

/// Who takes part, and the bytes that every rank has for every other. Offsets are those of the rank
/// that the schedule is made for.
struct PairShape : Groups {
  int ports = 1;
  std::uint64_t uniform_bytes = 0;      // of every pair, unless there is a matrix:
  std::vector<std::uint64_t> matrix{};  // by from * ranks + to
  std::vector<std::uint64_t> send_offsets;
  std::vector<std::uint64_t> receive_offsets;
  // Leaves out where puts land and how long parts of the slot are, for the cost model, which does
  // not look at them: where sizes differ that costs the exchange of the peer for every put, and
  // those of all participants.
  bool without_places = false;

  std::uint64_t bytes(int from, int to) const {
    return matrix.empty() ? uniform_bytes
                          : matrix[static_cast<std::size_t>(from) * map.node_of.size() +
                                   static_cast<std::size_t>(to)];
  }
};

/// Blocks are copied straight to where they leave from, travel (several of them in one region where
/// the algorithm sends them on together) and are copied out while later rounds are in flight. With
/// Level::Smp the blocks of all pairs of ranks of two nodes are one block, or with several leaders
/// one on every lane: what the ranks of its group have for the other node. O(blocks sent) where all
/// blocks, and all nodes, are of one size; else O(blocks) of every peer, and of every participant.
/// Throws std::invalid_argument for a shape that does not fit together.
Schedule lower_pairs(PairExchangeFunction exchange, const PairShape& shape, Level level, int rank);

/// The same straight between user buffers, in which places follow from the one size of all blocks:
/// a put leaves from the send buffer and ends in the peer's receive buffer. Of exchanges in which
/// every block goes to its place at once. Every rank talks for itself, with Level::Smp to all ranks
/// of a node in the step in which nodes exchange; blocks within a node go through its slot. What is
/// still to be sent must not lie where others put: the buffers must not be the same.
Schedule lower_pairs_zero_copy(PairExchangeFunction exchange, const PairShape& shape, Level level,
                               int rank);

/// Slot bytes of that on a node of so many ranks.
std::uint64_t straight_slot_bytes(int node_size, std::uint64_t block_bytes);

/// Slot bytes of lower_pairs() on the largest node, the same on all ranks.
std::uint64_t pairs_slot_bytes(PairExchangeFunction exchange, const PairShape& shape, Level level);

}  // namespace allrail::schedule
