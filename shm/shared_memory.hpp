// Memory that the ranks of a node map, beside the node segment: what Buffers are made of. A file in
// /dev/shm whose first page says who made it, so that a name that a dead job left is found again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lib/base/handle.hpp"

namespace allrail::shm {

class SharedMemory {
 public:
  /// Makes memory of that size. With an empty name nobody else can attach. Its pages do not exist
  /// yet: see take(). Throws Error{ResourceLimit}.
  static SharedMemory create(const std::string& name, std::uint64_t bytes);
  /// Opens what another rank made. Throws Error{Bootstrap} if it is not that.
  static SharedMemory attach(const std::string& name, std::uint64_t bytes);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  /// Reserves a part and maps the whole. Each rank reserves what it uses itself, near to it; nobody
  /// touches a part before its owner is known to have it. Once. Throws Error{ResourceLimit}.
  void take(std::uint64_t offset, std::uint64_t bytes);
  /// The same, and maps the part once more, for its owner: leave() unmaps it, while what the others
  /// have stays readable in bytes(). Parts are whole pages.
  void take_own(std::uint64_t offset, std::uint64_t bytes);
  /// Its owner's view of the part; empty without take_own(), and after leave().
  std::span<std::byte> own() const noexcept;
  /// Where that begins in bytes().
  std::uint64_t own_offset() const noexcept { return own_offset_; }
  /// Removes the name: for the creator, once all have attached. Others: no effect.
  void unlink() noexcept;
  /// The owner uses its part no more: the pages go back to the system, whoever has the memory
  /// mapped. Once per rank, also of one whose part is empty.
  void leave() noexcept;
  /// How many ranks have left.
  int left() const noexcept;
  /// All parts; empty before take().
  std::span<std::byte> bytes() const noexcept;

 private:
  std::atomic<std::int32_t>& left_count() const noexcept;

  base::UniqueFd file_;  // until take()
  std::uint64_t bytes_ = 0;
  std::shared_ptr<base::Mapping> mapping_;
  base::Mapping own_;
  std::uint64_t own_offset_ = 0;
  std::string name_;     // empty: no name to remove
  int creator_pid_ = 0;  // a forked child must not remove its parent's name
};

}  // namespace allrail::shm
