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

SlotRing::SlotRing(const SlotGeometry& geometry)
    : geometry_(geometry),
      last_call_(static_cast<std::size_t>(geometry.small_slots + geometry.large_slots), 0) {}

SlotUse SlotRing::take(std::uint64_t bytes, std::uint64_t call) {
  SlotUse use;
  if (bytes <= geometry_.small_slot_bytes) {
    use.number = static_cast<int>(small_taken_++ % static_cast<unsigned>(geometry_.small_slots));
  } else {
    use.number = geometry_.small_slots +
                 static_cast<int>(large_taken_++ % static_cast<unsigned>(geometry_.large_slots));
  }
  std::uint64_t& last = last_call_[static_cast<std::size_t>(use.number)];
  use.previous_call = last;
  last = call;
  return use;
}

}  // namespace allrail::coll
