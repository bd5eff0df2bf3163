#include "coll/slots.hpp"

#include <algorithm>

namespace allrail::coll {

SlotGeometry divide_node_memory(std::uint64_t node_memory_bytes) {
  constexpr std::uint64_t kPage = 4096;
  SlotGeometry geometry;
  // An eighth for the small ring, within 4 KiB and 256 KiB per slot; the rest for the large one.
  const std::uint64_t small =
      node_memory_bytes / 8 / static_cast<std::uint64_t>(geometry.small_slots);
  geometry.small_slot_bytes =
      std::clamp<std::uint64_t>(small, kPage, 256ULL * 1024) / kPage * kPage;
  const std::uint64_t left =
      node_memory_bytes -
      geometry.small_slot_bytes * static_cast<std::uint64_t>(geometry.small_slots);
  geometry.large_slot_bytes =
      left / static_cast<std::uint64_t>(geometry.large_slots) / kPage * kPage;
  return geometry;
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
      last_call_(static_cast<std::size_t>(geometry.small_slots + geometry.large_slots), 0) {}

SlotUse SlotRing::take(std::uint64_t bytes, std::uint64_t call) {
  SlotUse use;
  if (bytes <= geometry_.small_slot_bytes) {
    use.number = next_small_;
    if (++next_small_ == geometry_.small_slots) next_small_ = 0;
  } else {
    use.number = geometry_.small_slots + next_large_;
    if (++next_large_ == geometry_.large_slots) next_large_ = 0;
  }
  std::uint64_t& last = last_call_[static_cast<std::size_t>(use.number)];
  use.previous_call = last;
  last = call;
  return use;
}

}  // namespace allrail::coll
