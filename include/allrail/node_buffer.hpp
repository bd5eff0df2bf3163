// Memory that the ranks of a node share: results of calls are stored there once per node.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <allrail/buffer.hpp>

namespace allrail {

/// `size()` elements that the ranks of a node have together, zero at first, aligned to a page; made
/// by Communicator::allocate_node_shared(). Every rank of the node maps them, at an address of its
/// own; other nodes have others. A contiguous range: it converts to a span, and calls find out by
/// address that a span lies in a NodeBuffer, so that parts of it work as well.
///
/// In a call into it every rank copies its block to its place, the leader of each node receives the
/// blocks of other nodes, and nobody copies out (small blocks may be copied by one for all). When
/// the call returns on a rank, this rank sees the whole result, and nobody changes it before this
/// rank has entered the next call into this NodeBuffer: a rank that is late holds up the others
/// there. What this rank reads is what others read too: whoever writes into it between calls has to
/// tell the others by means of its own, such as barrier(). That holds for a rank that sends in
/// place, too: it may write its next block once the others have read the last one.
///
/// An error of such a call is thrown once all living ranks of the node have given it up: others
/// send to the leader, and a rank may be copying. Bytes may still change where it is thrown after
/// half a second, since one is stopped, or at once: to who enters later, or calls wrongly.
///
/// All ranks of a node name the same NodeBuffer at the same offset (and the same displacements) in
/// a call, and either all ranks of the job receive into NodeBuffers or none does; a difference is a
/// Mismatch on every rank. Ranks of different nodes may name different ones. What is sent may lie
/// anywhere.
///
/// Destruction is local, and the memory is there until the last rank of the node has destroyed its
/// NodeBuffer; no rank may make a call into it after another has. For the rest it is as with a
/// Buffer: a NodeBuffer must outlive the Plans that use it, with the same consequences, may be
/// destroyed before or after the communicator, and may move.
template <class T>
class NodeBuffer {
  static_assert(std::is_trivially_copyable_v<T>, "bytes of elements travel as they are");
  static_assert(alignof(T) <= 4096, "memory is aligned to pages");

 public:
  using value_type = T;

  NodeBuffer() = default;
  NodeBuffer(NodeBuffer&& other) noexcept
      : memory_(std::move(other.memory_)), size_(std::exchange(other.size_, 0)) {}
  NodeBuffer& operator=(NodeBuffer&& other) noexcept {
    if (this != &other) {
      memory_ = std::move(other.memory_);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  ~NodeBuffer() = default;

  T* data() noexcept { return reinterpret_cast<T*>(memory_.data()); }
  const T* data() const noexcept { return reinterpret_cast<const T*>(memory_.data()); }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T* begin() noexcept { return data(); }
  T* end() noexcept { return data() + size_; }
  const T* begin() const noexcept { return data(); }
  const T* end() const noexcept { return data() + size_; }
  T& operator[](std::size_t index) noexcept { return data()[index]; }
  const T& operator[](std::size_t index) const noexcept { return data()[index]; }

 private:
  friend class Communicator;
  NodeBuffer(BufferMemory memory, std::size_t size) noexcept
      : memory_(std::move(memory)), size_(size) {}

  BufferMemory memory_;
  std::size_t size_ = 0;
};

}  // namespace allrail
