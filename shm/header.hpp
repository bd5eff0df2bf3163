// The first page of a node segment. Internal to shm/: others use NodeSegment and wait.hpp.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/layout.hpp"
#include "shm/process.hpp"

namespace allrail::shm {

inline constexpr std::uint64_t kSegmentMagic = 0x314c4941524c4c41;  // "ALLRAIL1"
inline constexpr std::uint32_t kSegmentVersion = 4;

enum class AbortState : std::uint32_t { None = 0, Claimed = 1, Told = 2 };

/// The creator's ProcessIdentity stands at the very start, where remove_leftovers() reads it; the
/// header follows.
inline constexpr std::uint64_t kHeaderOffset = 128;

struct SegmentHeader {
  SegmentLayout layout;
  std::uint32_t version;
  std::atomic<std::int32_t> attached;
  std::atomic<std::uint64_t> magic;  // written last (release): everything above is valid

  /// How many ranks sleep or are about to; wakers look at it after raising a flag. A rank that
  /// cannot run membarrier(2) counts as a sleeper for ever.
  alignas(128) std::atomic<std::uint32_t> sleepers;

  /// The rank that holds others up, plus 1; 0: not known. The control plane writes it.
  alignas(128) std::atomic<std::int32_t> late_rank;

  alignas(128) std::atomic<std::uint32_t> abort_state;  // an AbortState
  std::int32_t abort_code;
  std::int32_t abort_peer;
  std::uint32_t abort_bytes;
  char abort_text[kMaxAbortText];
};
static_assert(sizeof(ProcessIdentity) <= kHeaderOffset);
static_assert(kHeaderOffset + sizeof(SegmentHeader) <= kPageBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace allrail::shm
