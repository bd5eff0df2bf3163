#include "coll/slots.hpp"

#include <algorithm>
#include <utility>

namespace allrail::coll {
namespace {

// A call that needs no more takes one small slot. A root that sends to all others and hears of them
// by eights hardly waits with 64 such slots, and does with 16 (docs/measured/findings.md).
constexpr std::uint64_t kMostInOneSlot = 8ULL * 1024;
// Not a power of two, so that slots do not share the same few lines of a cache.
constexpr std::uint64_t kMostSlotBytes = 68ULL * 1024;
static_assert(SlotGeometry{}.small_slots % kSlotsTogether == 0);
static_assert(kNearSlots % kSlotsTogether == 0 && kNearSlots <= SlotGeometry{}.small_slots);
static_assert(static_cast<std::uint64_t>(SlotGeometry{}.small_slots) < shm::kRecentCalls);

}  // namespace

std::uint64_t SlotGeometry::most_in_one_slot() const {
  return std::min(small_slot_bytes, kMostInOneSlot);
}

std::uint64_t SlotGeometry::most_in_small_ring() const {
  return small_slots < kSlotsTogether ? small_slot_bytes : kSlotsTogether * small_slot_bytes;
}

SlotGeometry divide_node_memory(std::uint64_t node_memory_bytes, std::uint64_t beside_slots_bytes) {
  constexpr std::uint64_t kPage = 4096;
  SlotGeometry geometry;
  // A sixteenth for what stands beside the slots, so that few ranks, whatever their number, have
  // slots alike; an eighth for the small ring, within a page and kMostSlotBytes per slot; the rest
  // for the large one.
  const std::uint64_t beside =
      std::clamp(beside_slots_bytes, node_memory_bytes / 16, node_memory_bytes / 2);
  const std::uint64_t small =
      node_memory_bytes / 8 / static_cast<std::uint64_t>(geometry.small_slots);
  geometry.small_slot_bytes =
      std::clamp<std::uint64_t>(small, kPage, kMostSlotBytes) / kPage * kPage;
  const std::uint64_t left =
      node_memory_bytes - beside -
      geometry.small_slot_bytes * static_cast<std::uint64_t>(geometry.small_slots);
  geometry.large_slot_bytes = std::min(
      left / static_cast<std::uint64_t>(geometry.large_slots) / kPage * kPage, kMostLargeSlotBytes);
  return geometry;
}

shm::SegmentLayout lay_out_segment(const SlotGeometry& geometry, int ranks,
                                   std::uint64_t directory_bytes) {
  shm::SegmentLayout layout;
  layout.ranks = ranks;
  layout.small_slots = geometry.small_slots;
  layout.small_slot_bytes = geometry.small_slot_bytes;
  layout.large_slots = geometry.large_slots;
  layout.large_slot_bytes = geometry.large_slot_bytes;
  layout.directory_bytes = directory_bytes;
  return shm::lay_out(layout);
}

std::uint64_t bytes_beside_slots(int ranks, std::uint64_t directory_bytes) {
  return lay_out_segment(SlotGeometry{}, ranks, directory_bytes).total_bytes;
}

std::uint64_t lane_bytes(std::uint64_t large_slot_bytes, int lanes) {
  return large_slot_bytes / static_cast<std::uint64_t>(lanes) / shm::kPageBytes * shm::kPageBytes;
}

std::vector<shm::MemoryPart> lane_parts(const shm::SegmentLayout& layout,
                                        std::span<const int> memory_of_lane) {
  std::vector<shm::MemoryPart> parts;
  const std::uint64_t bytes =
      lane_bytes(layout.large_slot_bytes, static_cast<int>(memory_of_lane.size()));
  for (int slot = 0; bytes > 0 && slot < layout.large_slots; ++slot) {
    std::uint64_t offset =
        layout.large_slots_offset + static_cast<std::uint64_t>(slot) * layout.large_slot_stride;
    for (const int memory : memory_of_lane) {
      if (memory >= 0) parts.push_back({offset, bytes, memory});
      offset += bytes;
    }
  }
  return parts;
}

SlotRing::SlotRing(const SlotGeometry& geometry)
    : geometry_(geometry),
      most_in_one_slot_(geometry.most_in_one_slot()),
      last_call_(static_cast<std::size_t>(geometry.small_slots + geometry.large_slots), 0) {}

SlotUse SlotRing::take_more(std::uint64_t bytes, std::uint64_t call, SlotOrder order) {
  if (takes_one(bytes, order)) return take_one(call, order);
  if (bytes <= geometry_.most_in_small_ring()) return take_together(call, order);
  const int number = geometry_.small_slots + next_large_;
  if (++next_large_ == geometry_.large_slots) next_large_ = 0;
  return {number, std::exchange(last_call_[static_cast<std::size_t>(number)], call)};
}

/// The call has the number and the flags of the first of them.
SlotUse SlotRing::take_together(std::uint64_t call, SlotOrder order) {
  const bool is_near = order == SlotOrder::Near;
  const int slots = is_near ? kNearSlots : geometry_.small_slots;
  int& next = is_near ? next_near_ : next_small_;
  SlotUse use;
  use.number = (next + kSlotsTogether - 1) / kSlotsTogether * kSlotsTogether;
  if (use.number + kSlotsTogether > slots) use.number = 0;
  for (int i = 0; i < kSlotsTogether; ++i) {
    const int number = use.number + i;
    std::uint64_t& last = last_call_[static_cast<std::size_t>(number)];
    use.previous_call = std::max(use.previous_call, last);
    last = call;
  }
  next = use.number + kSlotsTogether;
  if (next == slots) next = 0;
  return use;
}

}  // namespace allrail::coll
