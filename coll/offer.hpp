// What a rank says in the flag of a call whose block its node reads where it lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "shm/layout.hpp"

namespace allrail::coll {

/// Where memory lies for the ranks of a node: in a Buffer, which all of them map, or anywhere in
/// the process of its owner.
struct SharedPlace {
  std::uint64_t buffer = 0;  // its number, the same on all ranks; 0: it lies in no Buffer
  std::uint64_t offset = 0;  // in the memory of that allocation; else an address of the owner
};
static_assert(sizeof(SharedPlace) <= shm::kFlagPayloadBytes);

/// Before the flag is raised, and after it has been seen to be.
inline void write_offer(shm::Flag& flag, const SharedPlace& place) noexcept {
  std::memcpy(flag.payload, &place, sizeof place);
}
inline SharedPlace read_offer(const shm::Flag& flag) noexcept {
  SharedPlace place;
  std::memcpy(&place, flag.payload, sizeof place);
  return place;
}

/// The memory of Buffers that this rank has mapped.
class MappedBuffers {
 public:
  virtual ~MappedBuffers() = default;
  /// The parts of all ranks of this node; empty for a number that this rank does not know.
  virtual std::span<const std::byte> parts_of(std::uint64_t buffer) const noexcept = 0;
};

}  // namespace allrail::coll
