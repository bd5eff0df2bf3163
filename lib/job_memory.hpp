// How much memory the nodes of a job give to their segments, and how much of the user's memory a
// call may register with the rails: decided from all cards, so the same on all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "coll/roster.hpp"
#include "lib/card.hpp"

namespace allrail {

/// No node has less for its segment.
inline constexpr std::uint64_t kLeastNodeMemoryBytes = 1 << 20;

struct JobMemory {
  std::uint64_t node_bytes = 0;             // of every node, for its segment
  std::uint64_t user_bytes = UINT64_MAX;    // that one call may register; above it copies
  std::uint64_t buffer_bytes = UINT64_MAX;  // that the Buffers of a rank may register together
  // Whose limit on locked memory says so; -1: no limit does.
  int limiting_rank = -1;
  bool segment_is_cut = false;
  std::uint64_t lockable_bytes = UINT64_MAX;
  bool is_share = false;  // of that limit, which a communicator that was split off has of it
  int rails = 0;
};

/// Of the memory that a rank may lock, its rails share a half for the node segment, which each of
/// them registers, a quarter for the memory that calls register and an eighth for Buffers; the rest
/// is for their links, and for the communicators that are split off. `is_share`: what the cards
/// have is the share of one of these.
/// @throws Error{ResourceLimit} naming the rank whose limit does not allow the smallest segment.
JobMemory settle_memory(std::span<const Card> cards, const coll::Roster& roster,
                        std::uint64_t wanted_bytes, bool is_share = false);

/// Whether what is free in /dev/shm is enough for the segments of each host, `segment_bytes[n]` for
/// a node of n ranks. The same verdict on all ranks, so that all can say what to change and not
/// only those that make the segments.
/// @throws Error{ResourceLimit} naming the first rank of the host where it is not.
void check_shared_memory(std::span<const Card> cards, const coll::Roster& roster,
                         std::span<const std::uint64_t> segment_bytes);

/// What the user is told, once per job, when the limit on locked memory cuts the node segments
/// down, or a call's buffers are copied because of it. With the limit and the bytes wanted.
std::string segment_warning(const JobMemory& memory, std::uint64_t wanted_bytes);
std::string user_warning(const JobMemory& memory, std::uint64_t wanted_bytes);
/// The same for Buffers that are not registered. Both limits may be what the system said when it
/// was asked; `rank` is where.
std::string buffer_warning(const JobMemory& memory, int rank, std::uint64_t wanted_bytes);

/// Of what a rank may lock, what all communicators that are split off have together.
std::uint64_t lockable_for_splits(std::uint64_t lockable_bytes);
/// What this process may lock (RLIMIT_MEMLOCK), UINT64_MAX where there is no limit.
std::uint64_t lockable_memory();

}  // namespace allrail
