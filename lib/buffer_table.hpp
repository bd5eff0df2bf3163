// The Buffers and NodeBuffers of a communicator: where they lie, and what peers need to put there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "coll/offer.hpp"
#include "lib/entry_gate.hpp"
#include "shm/shared_memory.hpp"
#include "transport/fabric.hpp"

namespace allrail {

/// Owned together by the communicator and by its Buffers, since either may end first.
class BufferTable final : public coll::MappedBuffers {
 public:
  struct Entry {
    shm::SharedMemory memory;   // of all ranks of this node; until add(), where it is a Buffer
    std::span<std::byte> mine;  // this rank's Buffer, or the NodeBuffer
    std::uint64_t offset = 0;   // of a Buffer, in the memory of all ranks
    std::uint64_t number = 0;   // of the allocation, the same on all ranks
    // Its keys; empty where the job has no rails, and of a NodeBuffer on ranks that do not lead.
    transport::RemoteWindow window;
    // Not so where a rank may not lock as much: the same on all ranks.
    bool registered = false;
    std::uint64_t node_buffer = 0;  // its number among the NodeBuffers; 0: it is a Buffer
  };

  /// Called before a Buffer is taken from the rails: nothing may use it afterwards. Also where its
  /// communicator is gone and others of the job, which may use its memory, are not.
  using LetGo = std::function<void(const Entry&)>;

  /// `fabric` may be null, and is borrowed until close(). `gate` ends with the job: so long a
  /// Buffer is removed inside it, and `let_go` is called. `node_ranks` is the size of my node.
  BufferTable(std::weak_ptr<EntryGate> gate, transport::Fabric* fabric, LetGo let_go,
              int node_ranks = 1)
      : gate_(std::move(gate)),
        fabric_(fabric),
        let_go_(std::move(let_go)),
        node_ranks_(node_ranks) {}

  /// Takes a Buffer over; unregisters it in remove(). It stays mapped as long as other ranks of the
  /// node may send from their parts. One without a byte is for that only.
  void add(Entry entry);
  /// The registered Buffer or the NodeBuffer in which all of `memory` lies; null for ordinary
  /// memory.
  const Entry* find(std::span<const std::byte> memory) const noexcept;
  /// Whether all memory is ordinary memory.
  bool empty() const noexcept { return entries_.empty(); }
  /// What find() says stays as it is as long as this does.
  std::uint64_t version() const noexcept { return version_; }
  std::span<const std::byte> parts_of(std::uint64_t buffer) const noexcept override;
  /// Where memory for which find() said `entry` lies for the ranks of this node; of what is not in
  /// a Buffer, no Buffer.
  static coll::SharedPlace place_in(const Entry* entry, const std::byte* memory) noexcept;
  coll::SharedPlace place_of(std::span<const std::byte> memory) const noexcept {
    return place_in(find(memory), memory.data());
  }
  /// Of all Buffers and NodeBuffers that live, on this rank.
  std::uint64_t registered_bytes() const noexcept;
  /// The end of the Buffer that begins there. Without effect on other Buffers.
  void remove(const std::byte* data) noexcept;
  /// The communicator ends: nothing is registered any more, the memory stays with the Buffers.
  void close() noexcept;

 private:
  void unregister(Entry& entry) noexcept;
  void leave(std::uint64_t number) noexcept;
  void unmap_what_all_left() noexcept;

  std::weak_ptr<EntryGate> gate_;
  bool is_closed_ = false;
  transport::Fabric* fabric_;
  LetGo let_go_;
  int node_ranks_;
  struct Parts {
    shm::SharedMemory memory;
    bool has_ended = false;  // mine; those of others have not
  };
  std::map<std::uint64_t, Parts> parts_;       // of Buffers, by number
  std::map<const std::byte*, Entry> entries_;  // by begin
  std::uint64_t version_ = 0;
};

}  // namespace allrail
