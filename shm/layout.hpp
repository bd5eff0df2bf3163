// What lies where in a node segment. Plain data with offsets only: every process maps the segment
// at another address.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace allrail::shm {

inline constexpr std::uint64_t kPageBytes = 4096;
inline constexpr std::size_t kFlagPayloadBytes = 40;
inline constexpr std::size_t kMaxAbortText = 800;
/// More ranks than this on one node are refused; a layout from a damaged header never overflows.
inline constexpr int kMaxNodeRanks = 4096;

/// One cache line with one writer: that local rank. Readers read `value` first (acquire), then the
/// rest. `stamp` and `done` are atomics because the writer may raise the flag to its next stage
/// while a slow reader still looks at this one.
struct alignas(64) Flag {
  std::atomic<std::uint64_t> value;  // call << 16 | stage: only grows
  std::atomic<std::uint64_t> stamp;  // of that call
  std::atomic<std::uint64_t> done;   // the writer's done count when it raised the flag
  std::byte payload[kFlagPayloadBytes];
};
static_assert(sizeof(Flag) == 64);

/// "In `call` I wait for the rank that the job numbers so, and can do nothing else before."
constexpr std::uint64_t awaits_word(std::uint64_t call, int job_rank) noexcept {
  return call << 24 | (static_cast<std::uint64_t>(job_rank) + 1);
}
constexpr int awaited_rank(std::uint64_t word) noexcept {
  return static_cast<int>(word & 0xFFFFFF) - 1;
}
constexpr std::uint64_t awaiting_call(std::uint64_t word) noexcept { return word >> 24; }

/// The value of a flag at `stage` of `call`, which has no more than so many.
constexpr std::uint32_t kMostStages = 0xFFFF;
constexpr std::uint64_t flag_value(std::uint64_t call, std::uint32_t stage) noexcept {
  return call << 16 | stage;
}

/// What one rank of a node does for all of them in a call that has this slot: see once.hpp. By
/// slot.
struct alignas(64) OnceWord {
  std::atomic<std::uint64_t> value;  // only grows
};
static_assert(sizeof(OnceWord) == 64);

enum class RankState : std::uint32_t { Joining = 0, Active = 1, Goodbye = 2 };

/// The stamps of so many calls are kept: more than a rank can be ahead of another one of its node,
/// which the ring of small slots bounds.
inline constexpr std::uint64_t kRecentCalls = 128;

/// What a rank tells its node about itself. One writer: that rank; only `sleeping` is also cleared
/// by those who wake it, so it has a cache line of its own.
struct alignas(128) RankLine {
  std::atomic<std::uint64_t> done;  // last call whose slot this rank and its puts no longer use
  alignas(64) std::atomic<std::uint64_t> sequence;  // the call it is in, for the helper threads
  std::atomic<std::uint64_t> stamp;
  std::atomic<std::int64_t> entered_ns;  // when it entered that call (monotonic clock); 0: in none
  std::atomic<RankState> state;
  std::atomic<std::int32_t> pid;
  std::atomic<std::int32_t> rank;  // in the job; -1 until told
  // What it waits for while it has nothing else in flight: see awaits_word().
  std::atomic<std::uint64_t> awaits;
  // What the rank that talks for the node tells it in barriers, by their number modulo 2: nobody
  // begins the barrier after the next one before all have left this one.
  std::atomic<std::uint32_t> told[2];
  // 1: after an abort it has ended its calls and closed its rails, and writes nothing any more.
  std::atomic<std::uint32_t> gave_up;
  alignas(64) std::atomic<std::uint32_t> sleeping;  // see wait.hpp
  alignas(
      64) std::atomic<std::uint64_t> recent[kRecentCalls];  // stamps, by call modulo their count
};
static_assert(sizeof(RankLine) == 1280);

/// What a node segment holds, equal on every rank of the node. Fill in the first part, then pass
/// it through lay_out().
struct SegmentLayout {
  std::int32_t ranks = 0;
  std::int32_t small_slots = 64;  // less than kRecentCalls
  std::int32_t large_slots = 4;
  std::int32_t reserved = 0;
  std::uint64_t small_slot_bytes = 0;
  std::uint64_t large_slot_bytes = 0;
  std::uint64_t directory_bytes = 0;  // what all ranks of the node read and nobody changes

  // Computed by lay_out(): bytes from the start of the segment.
  std::uint64_t lines_offset = 0;
  std::uint64_t flags_offset = 0;
  std::uint64_t once_offset = 0;
  std::uint64_t local_puts_offset = 0;
  std::uint64_t local_puts_row = 0;  // bytes from one writer's counters to the next one's
  std::uint64_t small_slots_offset = 0;
  std::uint64_t small_slot_stride = 0;
  std::uint64_t large_slots_offset = 0;
  std::uint64_t large_slot_stride = 0;
  std::uint64_t directory_offset = 0;
  std::uint64_t total_bytes = 0;  // whole pages

  friend bool operator==(const SegmentLayout&, const SegmentLayout&) = default;
  int slots() const noexcept { return small_slots + large_slots; }
};

/// Fills in the computed part; slots start in the middle of pages. Throws Error{InvalidArgument}
/// where the request makes no sense or is larger than an address space.
SegmentLayout lay_out(SegmentLayout request);

}  // namespace allrail::shm
