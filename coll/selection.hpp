// Which algorithm a call takes when nobody names one.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "coll/block_header.hpp"
#include "transport/pace.hpp"

namespace allrail::coll {

/// Below this size ready tokens and waiting for acknowledgements cost more than the two copies that
/// they save, and on RDMA rails the memory has to be registered first. Measured over TCP rails,
/// which register for nothing: docs/performance.md, "Break-even with copying".
inline constexpr std::uint64_t kZeroCopyThresholdBytes = 1ULL * 1024 * 1024;
/// The same for a Buffer, for which nothing has to be registered.
inline constexpr std::uint64_t kBufferThresholdBytes = 512ULL * 1024;
/// For blocks of an alltoall between nodes of one rank; half of it where nodes have several
/// (alltoall::goes_straight()). Measured over TCP rails: docs/algorithms.md, "Alltoall".
inline constexpr std::uint64_t kAlltoallThresholdBytes = 512ULL * 1024;
/// Where rails were seen to be slow processors have time for copies, and the ready tokens of the
/// next call stand behind the data of this one. Measured: docs/decisions/0025.
inline constexpr std::uint64_t kSlowAlltoallThresholdBytes = 1024ULL * 1024;
constexpr std::uint64_t alltoall_threshold_bytes(transport::Pace pace) noexcept {
  return pace == transport::Pace::Slow ? kSlowAlltoallThresholdBytes : kAlltoallThresholdBytes;
}
/// For blocks of a gather or scatter. Measured over TCP rails:
/// docs/algorithms.md, "Gather, scatter, broadcast".
inline constexpr std::uint64_t kRootedThresholdBytes = 1024ULL * 1024;
/// For a NodeBuffer, and for all that a node contributes: below it blocks go through the segment
/// and the leader of the node copies what arrives, which saves the ready tokens and a wait for
/// acknowledgements. Measured: docs/decisions/0016.
inline constexpr std::uint64_t kNodeBufferThresholdBytes = 256ULL * 1024;

/// On a single node whose ranks outnumber its cores, up to which block one rank copies all of them
/// into a NodeBuffer, which saves the others a second turn on their cores. Measured:
/// docs/decisions/0016.
inline constexpr std::uint64_t kOnceBytes = 16ULL * 1024;

/// A leader more for every so many bytes that a node contributes, up to what locality calls for:
/// each of them then sends puts that are striped over all rails. With less, more leaders are more
/// messages and nothing else.
inline constexpr std::uint64_t kBytesPerLeader = 16ULL * 1024;

/// On a single node, a core for every rank: from which blocks on ranks read each other, with
/// a system call for each, instead of copying through the segment, where nothing was tried at
/// start-up. Measured: docs/decisions/0017.
inline constexpr std::uint64_t kSingleCopyThresholdBytes = 64ULL * 1024;
/// The same for Buffers, which need no system call.
inline constexpr std::uint64_t kMappedThresholdBytes = 2ULL * 1024;

/// Up to which part of its cost an allgatherv is worth its cut for a ring and chains, which copies
/// what would go straight.
inline constexpr double kRingChainCost = 0.85;
/// Of shorter blocks the start-up of messages is all that counts.
inline constexpr std::uint64_t kRingChainBytes = 32ULL * 1024;

/// What the choice depends on; equal on all ranks.
struct SelectionFacts {
  std::uint64_t bytes_per_rank = 0;  // the largest block
  bool blocks_differ = false;        // so much that it pays to cut them: kRingChainCost
  int ranks = 1;
  int nodes = 1;
  int smallest_node = 1;
  int largest_node = 1;
  int rails = 1;
  int natural_leaders = 1;  // that the places of ranks and rails call for
  int shared_leaves = 0;    // leaf switches on which at least two nodes hang; 0: none is known
  transport::Pace pace = transport::Pace::Unknown;  // of the rails, as all ranks know it
  // From which blocks on they go straight to the memory that is received into.
  std::uint64_t zero_copy_threshold_bytes = kZeroCopyThresholdBytes;
};

/// How long a call with blocks of a size took either way, tried at start-up.
struct SingleCopyTrial {
  std::uint64_t bytes = 0;
  std::uint64_t read_ns = 0;
  std::uint64_t copied_ns = 0;
};

/// From which blocks on ranks read each other, by trials in ascending order of size: the size from
/// which on that saves most over all sizes tried, each counted in parts of its own time, so that
/// one noisy trial does not outvote the others. Where it saves nothing, from four times the largest
/// on: larger blocks leave the caches, which two copies need. kSingleCopyThresholdBytes where
/// nothing was tried.
std::uint64_t single_copy_threshold(std::span<const SingleCopyTrial> trials) noexcept;

struct Selection {
  std::string algorithm;
  int ports = 1;
  int leaders = 1;
  std::string reason;  // half a sentence, for `allrail-info explain`
};

/// The first row of the table that fits. The rows were measured: docs/measured/findings.md.
Selection select_allgather(const SelectionFacts& facts);
/// The same for the collectives that are not allgathers. Bytes are those of the largest block: of
/// the data for a broadcast, of a pair for an alltoall.
Selection select_rooted(Operation operation, const SelectionFacts& facts);

}  // namespace allrail::coll
