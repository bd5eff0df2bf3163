// Memory that Allrail gives: it stays registered with every rail, so that calls that receive into
// it need not register anything.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include <allrail/error.hpp>

namespace allrail {

class BufferTable;

/// What is behind a Buffer. Move-only; the destructor gives the memory back.
class ALLRAIL_API BufferMemory {
 public:
  BufferMemory() noexcept;
  BufferMemory(BufferMemory&& other) noexcept;
  BufferMemory& operator=(BufferMemory&& other) noexcept;
  ~BufferMemory();
  std::byte* data() const noexcept { return data_; }

 private:
  friend class World;
  BufferMemory(std::shared_ptr<BufferTable> table, std::byte* data) noexcept;
  void reset() noexcept;

  std::shared_ptr<BufferTable> table_;
  std::byte* data_ = nullptr;
};

/// `size()` elements that belong to this rank, zero at first, aligned to a page; made by
/// Communicator::allocate(). A contiguous range: it converts to a span, and calls find out by
/// address that a span lies in a Buffer, so that parts of it work as well.
///
/// Either all ranks receive into Buffers in a call or none does; a difference is a Mismatch. What
/// is sent may lie anywhere. Destruction is local; it may come before or after that of the
/// communicator, but, as every use of Allrail, from one thread at a time. Nothing may use the
/// elements then any more.
///
/// A Buffer must outlive the Plans that send from it or receive into it. Where it does not, a plan
/// that runs is given a second to end, as if the plan were destroyed: then the communicator dies on
/// all ranks with Error{Aborted}. test() and wait() of that plan say afterwards how it ended; to
/// start it is Error{InvalidArgument}, which ends the communicator as any wrong call does. Without
/// such a plan destruction never waits. A Buffer may move: its elements stay where they are.
template <class T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>, "bytes of elements travel as they are");
  static_assert(alignof(T) <= 4096, "memory is aligned to pages");

 public:
  using value_type = T;

  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : memory_(std::move(other.memory_)), size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      memory_ = std::move(other.memory_);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  ~Buffer() = default;

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
  Buffer(BufferMemory memory, std::size_t size) noexcept
      : memory_(std::move(memory)), size_(size) {}

  BufferMemory memory_;
  std::size_t size_ = 0;
};

}  // namespace allrail
