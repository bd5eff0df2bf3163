// Which slot of the node segment a call uses, and which call had it before.
//
// Every rank makes the same calls in the same order, so that all ranks of all nodes give the same
// slots to the same calls without a word. Small calls have a ring of many slots, so that they
// stream; large calls have a ring of few big ones. A call in between takes four small slots that
// lie together. On a single node it depends on the call how soon a slot comes again (SlotOrder).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "shm/segment.hpp"

namespace allrail::coll {

/// A call in between takes so many small slots.
inline constexpr int kSlotsTogether = 4;

struct SlotGeometry {
  int small_slots = 64;
  int large_slots = 4;
  std::uint64_t small_slot_bytes = 0;
  std::uint64_t large_slot_bytes = 0;

  /// What a call needs at most to have one small slot, and to have several that lie together.
  std::uint64_t most_in_one_slot() const;
  std::uint64_t most_in_small_ring() const;
};

/// How `node_memory_bytes` is divided. `beside_slots_bytes` are what a segment without slots has;
/// where they are more than half of the memory, the segment is larger than that by the difference.
SlotGeometry divide_node_memory(std::uint64_t node_memory_bytes, std::uint64_t beside_slots_bytes);
/// The segment of a node of so many ranks.
shm::SegmentLayout lay_out_segment(const SlotGeometry& geometry, int ranks,
                                   std::uint64_t directory_bytes);
/// What it has beside its slots.
std::uint64_t bytes_beside_slots(int ranks, std::uint64_t directory_bytes);

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

/// Which of the small slots a call takes (docs/decisions/0026).
enum class SlotOrder {
  Ring,  // one after the other, so that nobody has to wait for who is some calls behind
  // A few in turn, so that their memory stays in the first-level caches. For calls in which nobody
  // gets ahead of others; they leave the ring where it is.
  Near,
  // As Ring, but a call that fits into one slot takes no more: so many calls lie between two that
  // use the same memory that no second-level cache holds it any more, and so many may be on their
  // way.
  Far,
};
/// Near calls go round so many slots: two of those that take four may be under way at once.
inline constexpr int kNearSlots = 8;
/// Near is for calls of up to so many bytes of a slot: what a first-level cache holds beside the
/// user's.
inline constexpr std::uint64_t kMostNearBytes = 20ULL * 1024;
/// Far is for so many ranks at most: eight with a core each were faster in the ring.
inline constexpr int kMostFarRanks = 4;
/// What one put of a slot may be: 1,024 chunks of the 1 MiB that rails of adapters take.
inline constexpr std::uint64_t kMostLargeSlotBytes = std::uint64_t{1} << 30;

class SlotRing {
 public:
  explicit SlotRing(const SlotGeometry& geometry);
  /// The slot of the next call. `bytes` are what it needs on the largest node: at most a large
  /// slot.
  SlotUse take(std::uint64_t bytes, std::uint64_t call, SlotOrder order = SlotOrder::Ring) {
    if (bytes > most_in_one_slot_) return take_more(bytes, call, order);
    return take_one(call, order);
  }
  /// Whether such a call takes one small slot.
  bool takes_one(std::uint64_t bytes, SlotOrder order) const {
    return bytes <= (order == SlotOrder::Far ? geometry_.small_slot_bytes : most_in_one_slot_);
  }
  /// What `previous_call` will be of the next call if it needs one small slot.
  std::uint64_t next_small_needs() const {
    return last_call_[static_cast<std::size_t>(next_small_)];
  }
  const SlotGeometry& geometry() const { return geometry_; }

 private:
  SlotUse take_one(std::uint64_t call, SlotOrder order) {
    const bool is_near = order == SlotOrder::Near;
    int& next = is_near ? next_near_ : next_small_;
    const int number = next;
    if (++next == (is_near ? kNearSlots : geometry_.small_slots)) next = 0;
    return {number, std::exchange(last_call_[static_cast<std::size_t>(number)], call)};
  }
  SlotUse take_more(std::uint64_t bytes, std::uint64_t call, SlotOrder order);
  SlotUse take_together(std::uint64_t call, SlotOrder order);

  SlotGeometry geometry_;
  std::uint64_t most_in_one_slot_;
  int next_small_ = 0;
  int next_near_ = 0;
  int next_large_ = 0;
  std::vector<std::uint64_t> last_call_;
};

}  // namespace allrail::coll
