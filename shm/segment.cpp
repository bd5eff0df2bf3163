#include "shm/segment.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <numa.h>
#include <numaif.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "shm/header.hpp"
#include "shm/leftovers.hpp"
#include "shm/shared_file.hpp"
#include "shm/wait.hpp"

namespace allrail::shm {
namespace {

constexpr SharedFileKind kNodeSegment{"node segment", "lower ALLRAIL_NODE_MEMORY"};

/// Where the page begins: policies are for pages, and slots begin in the middle of one.
constexpr std::uint64_t page_of(std::uint64_t offset) { return offset / kPageBytes * kPageBytes; }

/// All ranks of the node read and write the slots, so their pages are spread over its memories.
/// The policy belongs to the segment, hence it is set before the pages are reserved.
void spread_over_memories(const base::Mapping& mapping, const SegmentLayout& layout) noexcept {
  const std::uint64_t from = page_of(layout.small_slots_offset);
  if (layout.total_bytes <= from) return;
  if (::numa_available() < 0 || ::numa_num_configured_nodes() <= 1) return;
  const bitmask* memories = ::numa_get_mems_allowed();
  // Only a matter of speed: where the kernel refuses, pages lie where they lie.
  ::mbind(mapping.data() + from, layout.total_bytes - from, MPOL_INTERLEAVE, memories->maskp,
          memories->size + 1, 0);
  ::numa_bitmask_free(const_cast<bitmask*>(memories));
}

/// Preferred, not bound: where that memory is full, pages elsewhere are better than none.
void prefer_memories(const base::Mapping& mapping, std::span<const MemoryPart> parts) noexcept {
  if (parts.empty() || ::numa_available() < 0) return;
  bitmask* memories = ::numa_allocate_nodemask();
  for (const MemoryPart& part : parts) {
    if (part.memory < 0 || static_cast<unsigned long>(part.memory) >= memories->size) continue;
    ::numa_bitmask_clearall(memories);
    ::numa_bitmask_setbit(memories, static_cast<unsigned>(part.memory));
    const std::uint64_t from = page_of(part.offset);
    ::mbind(mapping.data() + from, part.offset + part.bytes - from, MPOL_PREFERRED, memories->maskp,
            memories->size + 1, 0);
  }
  ::numa_bitmask_free(memories);
}

/// Makes the objects of a fresh, zeroed segment and publishes it.
void initialize(std::byte* base, const SegmentLayout& layout) noexcept {
  new (base) ProcessIdentity(this_process());
  auto* header = new (base + kHeaderOffset) SegmentHeader{};
  header->layout = layout;
  header->version = kSegmentVersion;
  const auto ranks = static_cast<std::uint64_t>(layout.ranks);
  for (std::uint64_t rank = 0; rank < ranks; ++rank) {
    auto* line = new (base + layout.lines_offset + rank * sizeof(RankLine)) RankLine{};
    line->rank.store(-1, std::memory_order_relaxed);
    for (std::uint64_t to = 0; to < ranks; ++to) {
      new (base + layout.local_puts_offset + rank * layout.local_puts_row +
           to * sizeof(std::uint64_t)) std::atomic<std::uint64_t>(0);
    }
  }
  for (std::uint64_t flag = 0; flag < static_cast<std::uint64_t>(layout.slots()) * ranks; ++flag) {
    new (base + layout.flags_offset + flag * sizeof(Flag)) Flag{};
  }
  header->magic.store(kSegmentMagic, std::memory_order_release);
}

void check_header(const SegmentHeader& header, const std::string& name,
                  const SegmentLayout& layout) {
  if (header.magic.load(std::memory_order_acquire) != kSegmentMagic) {
    base::fail(Code::Bootstrap, "the node segment {} was never finished or is not one of Allrail",
               name);
  }
  if (header.version != kSegmentVersion) {
    base::fail(Code::Bootstrap,
               "the node segment {} has version {} and this rank reads version {}: the ranks of a "
               "node must run the same Allrail",
               name, header.version, kSegmentVersion);
  }
  if (header.layout != layout) {
    base::fail(Code::Bootstrap,
               "the node segment {} is laid out for {} ranks with slots of {} and {} bytes, this "
               "rank expects {} ranks with slots of {} and {} bytes: the ranks of a node must run "
               "with equal ALLRAIL settings",
               name, header.layout.ranks, header.layout.small_slot_bytes,
               header.layout.large_slot_bytes, layout.ranks, layout.small_slot_bytes,
               layout.large_slot_bytes);
  }
}

}  // namespace

std::string NodeSegment::make_name(std::uint64_t random) {
  return fmt::format("/allrail-{}-{:016x}", ::geteuid(), random);
}

NodeSegment NodeSegment::create(const std::string& name, const SegmentLayout& layout,
                                std::span<const MemoryPart> parts, HugePages huge_pages) {
  remove_leftovers();
  const base::UniqueFd file = make_shared_file(layout.total_bytes, kNodeSegment);
  NodeSegment segment;
  const HugePagePlan plan =
      plan_huge_pages(huge_pages, read_huge_page_policy(file.get()), layout.total_bytes);
  const auto mapping = map_with_huge_pages(file.get(), layout.total_bytes, plan, kNodeSegment);
  spread_over_memories(*mapping, layout);
  prefer_memories(*mapping, parts);
  reserve_with_huge_pages(file.get(), *mapping, plan, kNodeSegment);
  initialize(mapping->data(), layout);
  // Counted before it has a name: who attaches last removes that, also where this rank is dead by
  // then.
  segment.adopt(mapping, layout);
  name_shared_file(file.get(), name, kNodeSegment);
  segment.name_ = name;
  segment.creator_pid_ = ::getpid();
  return segment;
}

NodeSegment NodeSegment::attach(const std::string& name, const SegmentLayout& layout,
                                HugePages huge_pages) {
  const base::UniqueFd file = open_shared_file(name, layout.total_bytes, kNodeSegment);
  // The pages are there; whether this process sees the huge ones as such depends on its mapping.
  const HugePagePlan plan =
      plan_huge_pages(huge_pages, read_huge_page_policy(file.get()), layout.total_bytes);
  const auto mapping = map_with_huge_pages(file.get(), layout.total_bytes, plan, kNodeSegment);
  check_header(*reinterpret_cast<SegmentHeader*>(mapping->data() + kHeaderOffset), name, layout);
  NodeSegment segment;
  segment.adopt(mapping, layout);
  return segment;
}

std::vector<NodeSegment> NodeSegment::in_memory(const SegmentLayout& layout) {
  const auto mapping = map_shared(-1, layout.total_bytes, kNodeSegment);
  initialize(mapping->data(), layout);
  std::vector<NodeSegment> views(static_cast<std::size_t>(layout.ranks));
  for (NodeSegment& view : views) view.adopt(mapping, layout);
  return views;
}

void NodeSegment::adopt(std::shared_ptr<base::Mapping> mapping,
                        const SegmentLayout& layout) noexcept {
  mapping_ = std::move(mapping);
  base_ = mapping_->data();
  layout_ = layout;
  abort_state_ = &header().abort_state;
  enable_sleep(*this);
  header().attached.fetch_add(1, std::memory_order_acq_rel);
}

NodeSegment::NodeSegment(NodeSegment&& other) noexcept
    : mapping_(std::move(other.mapping_)),
      base_(std::exchange(other.base_, nullptr)),
      abort_state_(std::exchange(other.abort_state_, nullptr)),
      layout_(std::exchange(other.layout_, {})),
      name_(std::exchange(other.name_, {})),
      creator_pid_(other.creator_pid_) {}

NodeSegment& NodeSegment::operator=(NodeSegment&& other) noexcept {
  if (this != &other) {
    unlink();
    mapping_ = std::move(other.mapping_);
    base_ = std::exchange(other.base_, nullptr);
    abort_state_ = std::exchange(other.abort_state_, nullptr);
    layout_ = std::exchange(other.layout_, {});
    name_ = std::exchange(other.name_, {});
    creator_pid_ = other.creator_pid_;
  }
  return *this;
}

NodeSegment::~NodeSegment() { unlink(); }

void NodeSegment::unlink() noexcept {
  if (name_.empty() || creator_pid_ != ::getpid()) return;
  ::shm_unlink(name_.c_str());
  name_.clear();
}

int NodeSegment::attached_count() const noexcept {
  return header().attached.load(std::memory_order_acquire);
}

void NodeSegment::set_late_rank(int rank) const noexcept {
  header().late_rank.store(rank + 1, std::memory_order_relaxed);
}

int NodeSegment::late_rank() const noexcept {
  return header().late_rank.load(std::memory_order_relaxed) - 1;
}

bool NodeSegment::set_abort(int code, int peer, std::string_view text) const noexcept {
  SegmentHeader& header = this->header();
  auto expected = static_cast<std::uint32_t>(AbortState::None);
  if (!header.abort_state.compare_exchange_strong(
          expected, static_cast<std::uint32_t>(AbortState::Claimed), std::memory_order_acq_rel)) {
    return false;
  }
  header.abort_code = code;
  header.abort_peer = peer;
  header.abort_bytes = static_cast<std::uint32_t>(std::min(text.size(), kMaxAbortText));
  std::memcpy(header.abort_text, text.data(), header.abort_bytes);
  header.abort_state.store(static_cast<std::uint32_t>(AbortState::Told), std::memory_order_release);
  wake_sleepers(*this);
  return true;
}

AbortRecord NodeSegment::abort_record() const {
  constexpr std::int64_t kTellingNs = 100'000'000;  // more than a preempted writer needs
  const std::int64_t give_up_ns = base::now_ns() + kTellingNs;
  const SegmentHeader& header = this->header();
  std::uint32_t state = header.abort_state.load(std::memory_order_acquire);
  while (state == static_cast<std::uint32_t>(AbortState::Claimed) && base::now_ns() < give_up_ns) {
    ::usleep(100);
    state = header.abort_state.load(std::memory_order_acquire);
  }
  if (state == static_cast<std::uint32_t>(AbortState::None)) return {};
  if (state == static_cast<std::uint32_t>(AbortState::Claimed)) {
    return {static_cast<int>(Code::PeerLost), -1,
            "a rank of this node died while it reported a failure"};
  }
  const std::size_t bytes = std::min<std::size_t>(header.abort_bytes, kMaxAbortText);
  return {header.abort_code, header.abort_peer, std::string(header.abort_text, bytes)};
}

int remove_leftovers() noexcept {
  return sweep_leftovers([](const char* name) {
           base::log_info("removed the segment {} of a process that is dead", name);
         })
      .removed;
}

}  // namespace allrail::shm
