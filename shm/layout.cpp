#include "shm/layout.hpp"

#include "lib/base/error.hpp"
#include "shm/header.hpp"

namespace allrail::shm {
namespace {

constexpr std::uint64_t kLineBytes = 64;
constexpr std::uint64_t kMaxSlotBytes = std::uint64_t{1} << 40;
constexpr int kMaxSlots = 1 << 12;
// Slots begin in the middle of pages. Buffers of users mostly begin at a page or a few bytes behind
// one, and copies are slow on some processors where a block lies a few bytes behind its source,
// seen within pages (lib/base/copy.cpp).
constexpr std::uint64_t kWithinPage = kPageBytes / 2;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

SegmentLayout lay_out(SegmentLayout request) {
  if (request.ranks < 1 || request.ranks > kMaxNodeRanks) {
    base::fail(Code::InvalidArgument, "a node segment is for 1 to {} ranks, not {}", kMaxNodeRanks,
               request.ranks);
  }
  if (request.small_slots < 0 || request.large_slots < 0 || request.small_slots > kMaxSlots ||
      request.large_slots > kMaxSlots || request.small_slot_bytes > kMaxSlotBytes ||
      request.large_slot_bytes > kMaxSlotBytes || request.directory_bytes > kMaxSlotBytes) {
    base::fail(Code::InvalidArgument,
               "a node segment cannot have {} slots of {} bytes, {} slots of {} bytes and a "
               "directory of {} bytes",
               request.small_slots, request.small_slot_bytes, request.large_slots,
               request.large_slot_bytes, request.directory_bytes);
  }
  SegmentLayout layout = request;
  const auto ranks = static_cast<std::uint64_t>(layout.ranks);
  layout.reserved = 0;
  layout.lines_offset = kPageBytes;
  layout.flags_offset = layout.lines_offset + ranks * sizeof(RankLine);
  const auto slots = static_cast<std::uint64_t>(layout.slots());
  layout.once_offset = layout.flags_offset + slots * ranks * sizeof(Flag);
  layout.local_puts_offset = layout.once_offset + slots * sizeof(OnceWord);
  layout.local_puts_row = round_up(ranks * sizeof(std::uint64_t), kLineBytes);
  const std::uint64_t control_end = layout.local_puts_offset + ranks * layout.local_puts_row;
  layout.small_slot_stride = round_up(layout.small_slot_bytes, kPageBytes);
  layout.large_slot_stride = round_up(layout.large_slot_bytes, kPageBytes);
  layout.small_slots_offset = round_up(control_end, kPageBytes) + kWithinPage;
  layout.large_slots_offset =
      layout.small_slots_offset +
      static_cast<std::uint64_t>(layout.small_slots) * layout.small_slot_stride;
  // Behind the slots, whose places others compute.
  layout.directory_offset =
      layout.large_slots_offset +
      static_cast<std::uint64_t>(layout.large_slots) * layout.large_slot_stride + kWithinPage;
  layout.total_bytes = layout.directory_offset + round_up(layout.directory_bytes, kPageBytes);
  return layout;
}

}  // namespace allrail::shm
