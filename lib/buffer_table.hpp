// The Buffers and NodeBuffers of a communicator: where they lie, and what peers need to put there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "lib/entry_gate.hpp"
#include "shm/shared_memory.hpp"
#include "transport/fabric.hpp"

namespace allrail {

/// Owned together by the communicator and by its Buffers, since either may end first.
class BufferTable {
 public:
  struct Entry {
    shm::SharedMemory memory;   // of all ranks of this node
    std::span<std::byte> mine;  // this rank's Buffer, or the NodeBuffer
    // Its keys; empty where the job has no rails, and of a NodeBuffer on ranks that do not lead.
    transport::RemoteWindow window;
    // Not so where a rank may not lock as much: the same on all ranks.
    bool registered = false;
    std::uint64_t node_buffer = 0;  // its number among the NodeBuffers; 0: it is a Buffer
  };

  /// Called before a Buffer is taken from the rails: nothing may use it afterwards.
  using LetGo = std::function<void(const Entry&)>;

  /// `fabric` may be null. All are borrowed until close().
  BufferTable(EntryGate& gate, transport::Fabric* fabric, LetGo let_go)
      : gate_(&gate), fabric_(fabric), let_go_(std::move(let_go)) {}

  /// Takes a Buffer over that has a byte or more; unregisters and unmaps it in remove().
  void add(Entry entry);
  /// The registered Buffer or the NodeBuffer in which all of `memory` lies; null for ordinary
  /// memory.
  const Entry* find(std::span<const std::byte> memory) const noexcept;
  /// Of all Buffers and NodeBuffers that live, on this rank.
  std::uint64_t registered_bytes() const noexcept;
  /// The end of the Buffer that begins there. Without effect on other Buffers.
  void remove(const std::byte* data) noexcept;
  /// The communicator ends: nothing is registered any more, the memory stays with the Buffers.
  void close() noexcept;

 private:
  void unregister(Entry& entry) noexcept;

  EntryGate* gate_;
  transport::Fabric* fabric_;
  LetGo let_go_;
  std::map<const std::byte*, Entry> entries_;  // by begin
};

}  // namespace allrail
