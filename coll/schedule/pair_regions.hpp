#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "coll/schedule/pairs.hpp"

// Where the blocks of pairs lie in slot memory. Used by the lowering only.
//
// A participant has a part of the slot for every lane: a region for every transfer that it awaits,
// in order, then one for every transfer that it puts, then what its own ranks have for each other.
// A sender so needs nothing but the awaits of its peer to know where to put.
namespace allrail::schedule {

/// Lanes of an exchange at that level: those of the shape's groups where nodes take part.
int pair_lanes(const PairShape& shape, Level level);

/// The bytes of blocks between participants. On a lane go the blocks that the ranks of its groups
/// have for all ranks.
class PairBlocks {
 public:
  PairBlocks(const PairShape& shape, Level level);

  int count() const { return level_ == Level::Smp ? shape_.map.nodes() : shape_.map.ranks(); }
  std::vector<int> ranks(int participant) const {
    return level_ == Level::Smp ? shape_.map.ranks_of[participant] : std::vector<int>{participant};
  }
  /// Those whose blocks go on this lane.
  std::vector<int> givers(int participant, int lane) const;
  std::uint64_t bytes(const PairBlock& block, int lane) const {
    std::uint64_t sum = 0;
    for_pairs(block, lane, [&](int, int, std::uint64_t bytes) { sum += bytes; });
    return sum;
  }
  std::uint64_t region_bytes(const PairTransfer& transfer, int lane) const;
  std::uint64_t padded(const PairTransfer& transfer, int lane) const {
    return schedule::padded(region_bytes(transfer, lane));
  }
  /// visit(from, to, bytes) for the pairs of ranks of a block, in the order of its memory.
  template <class Visit>
  void for_pairs(const PairBlock& block, int lane, const Visit& visit) const {
    const std::vector<int> from_ranks = givers(block.from, lane);
    for (const int to : ranks(block.to)) {
      for (const int from : from_ranks) visit(from, to, shape_.bytes(from, to));
    }
  }

 private:
  const PairShape& shape_;
  const Level level_;
  std::optional<GroupTable> groups_;  // where there is more than one lane
};

/// The puts, or the awaits, of all rounds, one after the other.
std::vector<const PairTransfer*> transfers_of(const PairExchange& exchange,
                                              std::vector<PairTransfer> PairRound::*direction);

/// Where the regions of a participant lie, counted from the start of its part of the slot.
struct PairLayout {
  std::vector<std::uint64_t> awaited;  // by await
  std::vector<std::uint64_t> sent;     // by put
  std::uint64_t own = 0;
  std::uint64_t end = 0;
};
PairLayout lay_out(const PairExchange& exchange, const PairBlocks& blocks, int participant,
                   int lane);

/// Whether the regions of all participants lie alike: their exchanges do by the rules of PairRound,
/// so that it is a matter of sizes.
bool are_alike(const PairShape& shape, Level level);

/// Bytes of the largest part of any participant and lane.
std::uint64_t largest_part(PairExchangeFunction exchange, const PairShape& shape, Level level);

}  // namespace allrail::schedule
