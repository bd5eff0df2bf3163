#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coll/schedule/exchange.hpp"
#include "coll/schedule/schedule.hpp"
#include "coll/schedule/shape.hpp"

// Collectives in which not everybody brings a block and takes all of them: what the regions of a
// call hold, who fills them and who reads them.
namespace allrail::schedule {

/// Throws std::invalid_argument for Level::MultiLeader, which is of allgathers only.
void check_level(Level level);

/// Bytes of a region and where they lie in the user's memory of one rank.
struct Part {
  int rank;
  int region;
  std::uint64_t region_offset;  // behind the header
  std::uint64_t user_offset;    // in the send buffer of who gives, the receive buffer of who takes
  std::uint64_t bytes;
};

/// What one rank knows of a call. Participants stand in an order of their own, the root's first:
/// the peers of an Exchange are places in it, its blocks are regions. Every participant has all
/// regions at the same place of its slot memory.
struct Contents {
  Level level = Level::Smp;
  std::vector<int> order;                   // the participant at every place
  std::vector<std::uint64_t> region_bytes;  // by region, without header
  std::vector<int> held;                    // regions that my participant has at the start
  std::vector<Part> given;                  // into those, by all ranks of my participant, by region
  std::vector<Part> taken;                  // by me, in any order
  bool keeps = false;                       // one block goes from my send to my receive buffer
  std::uint64_t kept_from = 0, kept_to = 0;  // and where it lies there
  std::uint64_t kept_bytes = 0;
};

/// The participant that `rank` belongs to, its ranks, and the one of them that talks to others.
int participant_of(const Shape& shape, Level level, int rank);
std::span<const int> ranks_of(const Shape& shape, Level level, int participant);
int talking_rank_of(const Shape& shape, Level level, int participant);
int participants(const Shape& shape, Level level);
/// All participants, `first` at place 0, the others behind it as they follow each other.
std::vector<int> order_from(int first, int participants);
/// All ranks, `first` at place 0, node behind node, and on every other node the rank that talks
/// for it, which is the one nearest to the rails, before the others.
std::vector<int> ranks_node_by_node(const Shape& shape, int first);
int place_of(const std::vector<int>& order, int participant);

/// From the exchange of my participant's place to the schedule of `rank`: ranks fill the regions
/// that their participant holds, one of them exchanges regions with other participants, and what a
/// rank takes is copied out while later rounds are in flight. O(regions + transfers + parts).
/// Throws std::invalid_argument for a shape that does not fit together.
Schedule lower_contents(const Exchange& exchange, const Contents& contents, const Shape& shape,
                        int rank);

/// Slot bytes of that schedule on a node with `members` ranks.
std::uint64_t contents_slot_bytes(const std::vector<std::uint64_t>& region_bytes, Level level,
                                  int members);

}  // namespace allrail::schedule
