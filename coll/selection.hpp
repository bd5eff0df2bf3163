// Which algorithm a call takes when nobody names one.
#pragma once

#include <cstdint>
#include <string>

namespace allrail::coll {

/// Below this size ready tokens and waiting for acknowledgements cost more than the two copies that
/// they save, and on RDMA rails the memory has to be registered first. Measured over TCP rails,
/// which register for nothing: docs/performance.md, "Break-even with copying".
inline constexpr std::uint64_t kZeroCopyThresholdBytes = 1ULL * 1024 * 1024;
/// The same for a Buffer, for which nothing has to be registered.
inline constexpr std::uint64_t kBufferThresholdBytes = 512ULL * 1024;
/// For a NodeBuffer, and for all that a node contributes: below it blocks go through the segment
/// and the first rank of the node copies what arrives, which saves the ready tokens and a wait for
/// acknowledgements. Measured: docs/decisions/0016.
inline constexpr std::uint64_t kNodeBufferThresholdBytes = 256ULL * 1024;

/// What the choice depends on; equal on all ranks.
struct SelectionFacts {
  std::uint64_t bytes_per_rank = 0;  // the largest block
  int ranks = 1;
  int nodes = 1;
  int smallest_node = 1;
  int largest_node = 1;
  int rails = 1;
  // From which blocks on they go straight to the memory that is received into.
  std::uint64_t zero_copy_threshold_bytes = kZeroCopyThresholdBytes;
};

struct Selection {
  std::string algorithm;
  int ports = 1;
  int leaders = 1;
  std::string reason;  // half a sentence, for `allrail-info explain`
};

/// The first row of the table that fits. The rows were measured: docs/performance.md.
Selection select_allgather(const SelectionFacts& facts);

}  // namespace allrail::coll
