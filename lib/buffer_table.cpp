#include "lib/buffer_table.hpp"

#include <allrail/buffer.hpp>

#include "lib/base/log.hpp"

namespace allrail {

void BufferTable::add(Entry entry) {
  ++version_;
  unmap_what_all_left();
  const std::uint64_t number = entry.number;
  const std::byte* const begin = entry.mine.data();
  const bool is_empty = entry.mine.empty();
  if (entry.node_buffer == 0) {
    entry.offset = entry.memory.own_offset();
    parts_[number].memory = std::move(entry.memory);
  }
  if (is_empty) return leave(number);
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

std::span<const std::byte> BufferTable::parts_of(std::uint64_t buffer) const noexcept {
  const auto found = parts_.find(buffer);
  return found == parts_.end() ? std::span<const std::byte>() : found->second.memory.bytes();
}

coll::SharedPlace BufferTable::place_in(const Entry* entry, const std::byte* memory) noexcept {
  if (entry == nullptr || entry->node_buffer != 0) return {};
  return {entry->number, entry->offset + static_cast<std::uint64_t>(memory - entry->mine.data())};
}

/// This rank uses its part no more. The others may still send from theirs, and this rank read them.
void BufferTable::leave(std::uint64_t number) noexcept {
  const auto found = parts_.find(number);
  if (found == parts_.end()) return;  // a NodeBuffer
  found->second.has_ended = true;
  found->second.memory.leave();
  // Without a communicator nobody reads anything.
  if (is_closed_ || found->second.memory.left() >= node_ranks_) parts_.erase(found);
}

void BufferTable::unmap_what_all_left() noexcept {
  std::erase_if(parts_, [this](const auto& one) {
    return one.second.has_ended && one.second.memory.left() >= node_ranks_;
  });
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
  ++version_;
  if (fabric_ != nullptr && entry.registered) fabric_->unregister_window(entry.window);
  entry.registered = false;
}

void BufferTable::remove(const std::byte* data) noexcept {
  const auto found = entries_.find(data);
  if (found == entries_.end()) return;
  const std::shared_ptr<EntryGate> gate = gate_.lock();
  if (gate && !gate->enter()) {
    // Rails are in use by the thread inside: the memory is kept until the communicator ends.
    base::log_error(
        "a Buffer is destroyed by one thread while another is in a call of Allrail; one thread at "
        "a time may use Allrail in a process; its {} bytes stay in use",
        found->second.mine.size());
    return;
  }
  if (gate && let_go_) let_go_(found->second);
  unregister(found->second);
  leave(found->second.number);
  unmap_what_all_left();
  if (gate) gate->leave();
  entries_.erase(found);
}

void BufferTable::close() noexcept {
  for (auto& [begin, entry] : entries_) unregister(entry);
  fabric_ = nullptr;
  is_closed_ = true;
  std::erase_if(parts_, [](const auto& one) { return one.second.has_ended; });
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
