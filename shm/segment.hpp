// The node segment: memory that all ranks of a node share, and that is a window on every rail.
//
// It begins with a header, then the ranks' lines and flags, a word for every slot that its ranks
// may take (once.hpp), counters of local puts, then the slots. Each flag has one writer. The name
// in /dev/shm exists only from create() until every rank has attached.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/handle.hpp"
#include "shm/header.hpp"
#include "shm/huge_pages.hpp"
#include "shm/layout.hpp"

namespace allrail::shm {

/// The first cause of death of a node: what set_abort() recorded.
struct AbortRecord {
  int code = 0;  // a Code
  int peer = -1;
  std::string text;
};

/// What should lie in one memory (NUMA node) of a segment, with the rest of its pages.
struct MemoryPart {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  int memory = 0;
};

class NodeSegment {
 public:
  /// "/allrail-<uid>-<16 hex digits>".
  static std::string make_name(std::uint64_t random);
  /// Creates the segment and removes what dead processes of this user left behind. What is in none
  /// of the parts is spread over all memories. Throws Error{ResourceLimit} where the system has no
  /// room for it.
  static NodeSegment create(const std::string& name, const SegmentLayout& layout,
                            std::span<const MemoryPart> parts = {},
                            HugePages huge_pages = HugePages::Auto);
  /// Opens a segment that another rank created. Throws Error{Bootstrap} if it is not the one that
  /// this layout describes.
  static NodeSegment attach(const std::string& name, const SegmentLayout& layout,
                            HugePages huge_pages = HugePages::Auto);
  /// One view per rank of one unnamed mapping, for ranks that are threads or forked children.
  static std::vector<NodeSegment> in_memory(const SegmentLayout& layout);

  NodeSegment() = default;
  NodeSegment(NodeSegment&& other) noexcept;
  NodeSegment& operator=(NodeSegment&& other) noexcept;
  /// The creator's removes the name if unlink() has not.
  ~NodeSegment();

  /// Removes the name; for the creator, once attached_count() equals the ranks. Others: no effect.
  void unlink() noexcept;
  /// How many ranks have the segment mapped (or had it).
  int attached_count() const noexcept;

  const SegmentLayout& layout() const noexcept { return layout_; }
  int ranks() const noexcept { return layout_.ranks; }
  std::span<std::byte> bytes() const noexcept { return {base_, layout_.total_bytes}; }
  /// Bytes from the start of the segment to `address`, which lies in it.
  std::uint64_t offset_of(const void* address) const noexcept {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - base_);
  }
  std::byte* small_slot(int index) const noexcept {
    return base_ + layout_.small_slots_offset +
           static_cast<std::uint64_t>(index) * layout_.small_slot_stride;
  }
  std::byte* large_slot(int index) const noexcept {
    return base_ + layout_.large_slots_offset +
           static_cast<std::uint64_t>(index) * layout_.large_slot_stride;
  }
  /// Written by the creator before others attach.
  std::span<std::byte> directory() const noexcept {
    return {base_ + layout_.directory_offset, layout_.directory_bytes};
  }

  /// The flag of `local_rank` for a slot; the small slots are numbered first, then the large ones.
  Flag& flag(int slot_number, int local_rank) const noexcept {
    const auto index =
        static_cast<std::uint64_t>(slot_number) * static_cast<std::uint64_t>(layout_.ranks) +
        static_cast<std::uint64_t>(local_rank);
    return *std::launder(
        reinterpret_cast<Flag*>(base_ + layout_.flags_offset + index * sizeof(Flag)));
  }
  OnceWord& once(int slot_number) const noexcept {
    return *std::launder(reinterpret_cast<OnceWord*>(
        base_ + layout_.once_offset + static_cast<std::uint64_t>(slot_number) * sizeof(OnceWord)));
  }
  RankLine& line(int local_rank) const noexcept {
    return *std::launder(reinterpret_cast<RankLine*>(
        base_ + layout_.lines_offset + static_cast<std::uint64_t>(local_rank) * sizeof(RankLine)));
  }
  /// Counts the puts from one local rank to another; only `from` writes it.
  std::atomic<std::uint64_t>& local_puts(int from, int to) const noexcept {
    return *std::launder(reinterpret_cast<std::atomic<std::uint64_t>*>(
        base_ + layout_.local_puts_offset +
        static_cast<std::uint64_t>(from) * layout_.local_puts_row +
        static_cast<std::uint64_t>(to) * sizeof(std::uint64_t)));
  }

  /// Records the first cause and wakes all sleepers. False if there was a cause already. `text` is
  /// cut at kMaxAbortText bytes.
  bool set_abort(int code, int peer, std::string_view text) const noexcept;
  /// One load; every wait looks at it.
  bool aborted() const noexcept { return abort_state_->load(std::memory_order_acquire) != 0; }
  /// The first cause; waits a moment for a writer that is between claiming and telling it.
  AbortRecord abort_record() const;

  /// The rank that holds others up, or -1: nobody is known to. For texts only.
  void set_late_rank(int rank) const noexcept;
  int late_rank() const noexcept;

  SegmentHeader& header() const noexcept {
    return *std::launder(reinterpret_cast<SegmentHeader*>(base_ + kHeaderOffset));
  }

 private:
  void adopt(std::shared_ptr<base::Mapping> mapping, const SegmentLayout& layout) noexcept;

  std::shared_ptr<base::Mapping> mapping_;  // in_memory() views share it
  std::byte* base_ = nullptr;
  std::atomic<std::uint32_t>* abort_state_ = nullptr;
  SegmentLayout layout_;
  std::string name_;     // empty: no name to remove
  int creator_pid_ = 0;  // a forked child must not remove its parent's name
};

/// Removes segments in /dev/shm that belong to this user and whose creator is dead. Returns how
/// many. create() calls it.
int remove_leftovers() noexcept;

}  // namespace allrail::shm
