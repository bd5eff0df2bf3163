#include "lib/buffer_table.hpp"

#include <allrail/buffer.hpp>

#include "lib/base/log.hpp"

namespace allrail {

void BufferTable::add(Entry entry) {
  const std::byte* begin = entry.mine.data();
  entries_.emplace(begin, std::move(entry));
}

const BufferTable::Entry* BufferTable::find(std::span<const std::byte> memory) const noexcept {
  if (entries_.empty() || memory.empty()) return nullptr;
  auto next = entries_.upper_bound(memory.data());
  if (next == entries_.begin()) return nullptr;
  const Entry& entry = (--next)->second;
  const auto offset = static_cast<std::size_t>(memory.data() - entry.mine.data());
  const bool inside = offset < entry.mine.size() && memory.size() <= entry.mine.size() - offset;
  return inside && (entry.registered || entry.node_buffer != 0) ? &entry : nullptr;
}

std::uint64_t BufferTable::registered_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const auto& [begin, entry] : entries_) {
    const bool held_here = entry.node_buffer == 0 || !entry.window.keys.empty();
    bytes += entry.registered && held_here ? entry.mine.size() : 0;
  }
  return bytes;
}

void BufferTable::unregister(Entry& entry) noexcept {
  if (fabric_ != nullptr && entry.registered) fabric_->unregister_window(entry.window);
  entry.registered = false;
}

void BufferTable::remove(const std::byte* data) noexcept {
  const auto found = entries_.find(data);
  if (found == entries_.end()) return;
  if (gate_ != nullptr && !gate_->enter()) {
    // Rails are in use by the thread inside: the memory is kept until the communicator ends.
    base::log_error(
        "a Buffer is destroyed by one thread while another is in a call of Allrail; one thread at "
        "a time may use Allrail in a process; its {} bytes stay in use",
        found->second.mine.size());
    return;
  }
  if (let_go_) let_go_(found->second);
  unregister(found->second);
  if (gate_ != nullptr) gate_->leave();
  entries_.erase(found);
}

void BufferTable::close() noexcept {
  for (auto& [begin, entry] : entries_) unregister(entry);
  fabric_ = nullptr;
  gate_ = nullptr;
  let_go_ = nullptr;
}

BufferMemory::BufferMemory() noexcept = default;
BufferMemory::BufferMemory(std::shared_ptr<BufferTable> table, std::byte* data) noexcept
    : table_(std::move(table)), data_(data) {}
BufferMemory::BufferMemory(BufferMemory&& other) noexcept
    : table_(std::move(other.table_)), data_(std::exchange(other.data_, nullptr)) {}

BufferMemory& BufferMemory::operator=(BufferMemory&& other) noexcept {
  if (this != &other) {
    reset();
    table_ = std::move(other.table_);
    data_ = std::exchange(other.data_, nullptr);
  }
  return *this;
}

BufferMemory::~BufferMemory() { reset(); }

void BufferMemory::reset() noexcept {
  if (table_ && data_ != nullptr) table_->remove(data_);
  table_.reset();
  data_ = nullptr;
}

}  // namespace allrail
