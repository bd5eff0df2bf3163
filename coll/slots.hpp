// Which slot of the node segment a call uses, and which call had it before.
//
// Every rank makes the same calls in the same order, so that all ranks of all nodes give the same
// slots to the same calls without a word. Small calls have a ring of many slots, so that they
// stream; large calls have a ring of few big ones. A call in between takes four small slots that
// lie together, so that its like use no more memory than caches hold.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "shm/segment.hpp"

namespace allrail::coll {

struct SlotGeometry {
  int small_slots = 64;
  int large_slots = 4;
  std::uint64_t small_slot_bytes = 0;
  std::uint64_t large_slot_bytes = 0;

  /// What a call needs at most to have one small slot, and to have several that lie together.
  std::uint64_t most_in_one_slot() const;
  std::uint64_t most_in_small_ring() const;
};

/// How `node_memory_bytes` is divided.
SlotGeometry divide_node_memory(std::uint64_t node_memory_bytes);

/// In a large slot each lane of leaders has an even part, whatever the call, so that it can lie in
/// the memory near its leader, who receives there.
std::uint64_t lane_bytes(std::uint64_t large_slot_bytes, int lanes);
/// Which parts of a segment those are; `memory_of_lane` -1: of no memory in particular.
std::vector<shm::MemoryPart> lane_parts(const shm::SegmentLayout& layout,
                                        std::span<const int> memory_of_lane);

struct SlotUse {
  int number = 0;                   // small slots first, then large ones
  std::uint64_t previous_call = 0;  // must be done everywhere before this slot is written; 0: none
};

/// When a small slot has its next turn. `Late`: when all of them have had one, so that nobody has
/// to wait for who is some calls behind. `Soon`: after a few calls, so that their memory stays in
/// the caches; for calls in which nobody gets ahead of others.
enum class SlotTurn { Late, Soon };
/// Up to so many bytes of a call that is worth it: what the first-level cache holds, beside as much
/// of the user's. Calls of 64 KiB and more take longer by it (docs/measured/findings.md).
inline constexpr std::uint64_t kMostSoonBytes = 20ULL * 1024;

class SlotRing {
 public:
  explicit SlotRing(const SlotGeometry& geometry);
  /// The slot of the next call. `bytes` are what it needs on the largest node: at most a large
  /// slot.
  SlotUse take(std::uint64_t bytes, std::uint64_t call, SlotTurn turn = SlotTurn::Late) {
    if (bytes > most_in_one_slot_) return take_more(bytes, call, turn);
    const int number = next_small_;
    next_small_ = after(number + 1, turn);
    return {number, std::exchange(last_call_[static_cast<std::size_t>(number)], call)};
  }
  /// What `previous_call` will be of the next call if it needs one small slot.
  std::uint64_t next_small_needs() const {
    return last_call_[static_cast<std::size_t>(next_small_)];
  }
  const SlotGeometry& geometry() const { return geometry_; }

 private:
  // Slots that have their turns soon are so many that lie together: two calls of four each.
  static constexpr int kSoon = 8;

  /// The small slot behind those that end at `next`.
  int after(int next, SlotTurn turn) const {
    if (turn == SlotTurn::Soon && next % kSoon == 0) return next - kSoon;
    return next == geometry_.small_slots ? 0 : next;
  }
  SlotUse take_more(std::uint64_t bytes, std::uint64_t call, SlotTurn turn);
  SlotUse take_together(std::uint64_t call, SlotTurn turn);

  SlotGeometry geometry_;
  std::uint64_t most_in_one_slot_;
  int next_small_ = 0;
  int next_large_ = 0;
  std::vector<std::uint64_t> last_call_;
};

}  // namespace allrail::coll
