// The header of every region of slot memory, and how a call is told from another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "coll/schedule/schedule.hpp"

namespace allrail::coll {

enum class Operation : std::uint32_t {
  Barrier = 1,
  Allgather = 2,
  Allgatherv = 3,
  Allocate = 4,
  Gather = 5,
  Gatherv = 6,
  Scatter = 7,
  Scatterv = 8,
  Broadcast = 9,
  Alltoall = 10,
  Alltoallv = 11,
  Split = 12,
  Counts = 13,          // of an alltoallv, which are exchanged before it where they are new
  PlannedBarrier = 14,  // spreads nothing: other calls may begin between its start and its end
  StartUp = 15          // whether ranks read each other's memory, and from which blocks on
};
const char* operation_name(Operation operation) noexcept;
/// Allgathers that Allrail makes for itself.
constexpr bool is_own(Operation operation) noexcept {
  return operation == Operation::Allocate || operation == Operation::Split ||
         operation == Operation::Counts || operation == Operation::StartUp;
}
constexpr bool is_barrier(Operation operation) noexcept {
  return operation == Operation::Barrier || operation == Operation::PlannedBarrier;
}

/// What a call receives into; the same on all ranks. A NodeBuffer that the rails could not register
/// is a kind of its own.
enum class MemoryKind : std::uint32_t {
  Ordinary = 0,
  Buffer = 1,
  NodeBuffer = 2,
  CopiedNodeBuffer = 3
};
constexpr bool is_node_shared(MemoryKind kind) noexcept {
  return kind == MemoryKind::NodeBuffer || kind == MemoryKind::CopiedNodeBuffer;
}

/// What a rank said it was doing: enough to name the difference when two ranks disagree.
struct CallDescription {
  std::uint64_t bytes = 0;  // of the largest block
  Operation operation = Operation::Allgather;
  std::uint32_t algorithm = 0;  // row of the collective's algorithm table
  MemoryKind memory = MemoryKind::Ordinary;
  std::int32_t root = -1;  // of a collective that has one
};

/// Written by the owner of a region before its data leaves; travels with it. `done` is the last
/// call whose slot the owner's node no longer reads nor sends from.
struct BlockHeader {
  std::uint64_t stamp = 0;
  std::uint64_t call = 0;
  std::uint64_t done = 0;
  CallDescription description;
  std::int32_t owner = -1;
  std::uint32_t pace_word = 0;  // of a barrier: see PaceAgreement
};
static_assert(sizeof(BlockHeader) <= schedule::kHeaderBytes);

/// Whether it was written in the call with this stamp, by one of `ranks` ranks. Input is untrusted.
constexpr bool is_of_call(const BlockHeader& header, std::uint64_t stamp, int ranks) noexcept {
  return header.stamp == stamp && header.owner >= 0 && header.owner < ranks;
}

/// Mixes two words into a hash: the finalizer of MurmurHash3 over their combination.
constexpr std::uint64_t mix(std::uint64_t seed, std::uint64_t value) noexcept {
  std::uint64_t h = seed ^ (value + 0x9E3779B97F4A7C15ULL + (seed << 6) + (seed >> 2));
  h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCDULL;
  h = (h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53ULL;
  return h ^ (h >> 33);
}

}  // namespace allrail::coll
