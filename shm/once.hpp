// What one rank of a node does for all of them: whoever comes to it first. The others go on when it
// is done, and need not come to it before, so that where ranks outnumber cores the last rank of a
// call does it and nobody has to be scheduled once more.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/wait.hpp"

namespace allrail::shm {

enum class OnceTurn : std::uint8_t {
  Mine,   // this rank is to do it, and says finish_once()
  Other,  // another rank is at it
  Done,   // what it wrote is visible here
};

/// The word of a call that is done: above any claim, which is by local rank.
constexpr std::uint64_t once_done(std::uint64_t call) noexcept { return call << 16 | 0xFFFF; }
static_assert(kMaxNodeRanks < 0xFFFF);

/// The word belongs to the slot of `call`, which its last user has left. A rank that was told Mine
/// does not ask again.
inline OnceTurn take_once(OnceWord& word, std::uint64_t call, int local_rank) noexcept {
  std::uint64_t seen = word.value.load(std::memory_order_acquire);
  if (seen < call << 16) {
    const std::uint64_t claim = call << 16 | (static_cast<std::uint64_t>(local_rank) + 1);
    if (word.value.compare_exchange_strong(seen, claim, std::memory_order_acq_rel,
                                           std::memory_order_acquire)) {
      return OnceTurn::Mine;
    }
  }
  return seen >= once_done(call) ? OnceTurn::Done : OnceTurn::Other;
}

inline void finish_once(const NodeSegment& segment, OnceWord& word, std::uint64_t call) noexcept {
  word.value.store(once_done(call), std::memory_order_release);
  notify(segment);
}

/// The local rank that is at it, or -1.
inline int once_claimer(const OnceWord& word, std::uint64_t call) noexcept {
  const std::uint64_t seen = word.value.load(std::memory_order_relaxed);
  return seen > call << 16 && seen < once_done(call) ? static_cast<int>(seen & 0xFFFF) - 1 : -1;
}

}  // namespace allrail::shm
