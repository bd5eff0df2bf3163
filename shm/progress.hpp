// What a rank tells its node about the call it is in, readable at any moment by another process.
#pragma once

#include <cstdint>

#include "shm/layout.hpp"

namespace allrail::shm {

/// Only the line's rank calls these. Sequence numbers start at 1.
inline void enter_call(RankLine& line, std::uint64_t sequence, std::uint64_t stamp,
                       std::int64_t now_ns) noexcept {
  // A reader that meets the new stamp also meets the 0, or the new number, when it looks again.
  line.sequence.store(0, std::memory_order_relaxed);
  line.stamp.store(stamp, std::memory_order_release);
  // Likewise: who meets the stamp of this call there no longer meets the number of one before it
  // (tests/model/call_line.pml).
  line.recent[sequence % kRecentCalls].store(stamp, std::memory_order_release);
  line.entered_ns.store(now_ns, std::memory_order_relaxed);
  line.sequence.store(sequence, std::memory_order_release);
}
inline void leave_call(RankLine& line) noexcept {
  line.entered_ns.store(0, std::memory_order_relaxed);
}

struct CallProgress {
  std::uint64_t sequence = 0;  // 0: none yet, or just changing
  std::uint64_t stamp = 0;
  std::int64_t entered_ns = 0;  // 0: has left it
};

inline CallProgress read_call(const RankLine& line) noexcept {
  const std::uint64_t before = line.sequence.load(std::memory_order_acquire);
  const std::uint64_t stamp = line.stamp.load(std::memory_order_acquire);
  const std::int64_t entered_ns = line.entered_ns.load(std::memory_order_relaxed);
  const std::uint64_t after = line.sequence.load(std::memory_order_relaxed);
  if (before != after) return {};
  return {before, stamp, entered_ns};
}

/// The stamp of a call that the rank is in or was in not long ago; 0 where that is not known.
inline std::uint64_t recent_stamp(const RankLine& line, std::uint64_t sequence) noexcept {
  const auto is_kept = [&](std::uint64_t newest) {
    return sequence != 0 && sequence <= newest && newest - sequence < kRecentCalls;
  };
  if (!is_kept(line.sequence.load(std::memory_order_acquire))) return 0;
  const std::uint64_t stamp = line.recent[sequence % kRecentCalls].load(std::memory_order_acquire);
  // Not overwritten meanwhile: that shows in the number, or in the 0 before it.
  return is_kept(line.sequence.load(std::memory_order_relaxed)) ? stamp : 0;
}

}  // namespace allrail::shm
