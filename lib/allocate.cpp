// Memory that Allrail gives to its ranks: one file in /dev/shm per node and allocation, with a part
// for each rank, or the whole for all of them. All ranks learn together whether all of them have
// theirs.
#include <algorithm>
#include <limits>
#include <new>
#include <vector>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "lib/base/random.hpp"
#include "lib/world.hpp"
#include "shm/shared_file.hpp"

namespace allrail {
namespace {

/// What a rank tells all others while memory is made.
enum class Outcome : std::uint64_t { Done = 0, NotRegistered = 1, Failed = 2 };
struct Record {
  std::uint64_t bytes = 0;  // wanted
  std::uint64_t random = 0;
  Outcome outcome = Outcome::Done;
  MemoryOwner owner = MemoryOwner::Rank;
};

std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + shm::kPageBytes - 1) / shm::kPageBytes * shm::kPageBytes;
}

/// The first rank that came to the worst outcome.
std::size_t worst(const std::vector<Record>& records) {
  const auto found = std::ranges::max_element(records, {}, &Record::outcome);
  return static_cast<std::size_t>(found - records.begin());
}

}  // namespace

/// The memory of one allocation while it is made; gone again where it is not finished.
class World::Allocation {
 public:
  Allocation(World& world, std::uint64_t bytes, MemoryOwner owner) : world_(world) {
    mine_.bytes = bytes;
    mine_.owner = owner;
    mine_.random = base::random_number();
  }

  ~Allocation() {
    unregister();
    // All are there, or none will come: the rank that named it may have been killed since.
    if (!name_.empty()) shm::remove_shared_file(name_);
  }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  BufferTable::Entry make() {
    const std::vector<Record> wanted = exchange();
    check_agreement(wanted);
    lay_out(wanted);
    entry_.number = ++world_.allocations_;
    if (is_node_shared()) entry_.node_buffer = ++world_.node_buffers_;
    if (total_ > 0 && world_.team_.local_rank == 0) {
      attempt([this] { entry_.memory = shm::SharedMemory::create(name_, total_); });
    }
    // Others can attach only to what is there; where nobody does, this round is left out.
    if (world_.roster_.largest_node() > 1) agree();
    if (mine_.outcome == Outcome::Done && total_ > 0) attempt([this] { take(); });
    // To register memory is to touch it, also the parts that other ranks reserve.
    if (is_node_shared() && world_.roster_.largest_node() > 1) agree();
    if (mine_.outcome == Outcome::Done && mine_.bytes > 0) attempt([this] { make_known(); });
    const std::vector<Record> found = agree();
    entry_.memory.unlink();
    if (found[worst(found)].outcome == Outcome::NotRegistered) give_up_registration(found);
    BufferTable::Entry made = std::move(entry_);
    entry_ = {};
    return made;
  }

 private:
  std::vector<Record> exchange() {
    std::vector<Record> all(static_cast<std::size_t>(world_.roster_.ranks()));
    world_.exchange(std::as_bytes(std::span(&mine_, 1)), std::as_writable_bytes(std::span(all)));
    return all;
  }

  bool is_node_shared() const { return mine_.owner == MemoryOwner::Node; }

  /// The same outcome on all ranks, since all have the same records.
  void check_agreement(const std::vector<Record>& wanted) {
    const Record& first = wanted.front();
    for (std::size_t rank = 1; rank < wanted.size(); ++rank) {
      const Record& other = wanted[rank];
      const auto name = [](MemoryOwner owner) {
        return owner == MemoryOwner::Node ? "allocate_node_shared" : "allocate";
      };
      if (other.owner == first.owner &&
          (other.bytes == first.bytes || first.owner == MemoryOwner::Rank)) {
        continue;
      }
      world_.engine_->die(
          Code::Mismatch, static_cast<int>(rank),
          fmt::format(
              "rank 0 calls {} for {} bytes, rank {} calls {} for {} bytes; every rank must "
              "make the same calls, and ask for a NodeBuffer of the same size",
              name(first.owner), first.bytes, rank, name(other.owner), other.bytes));
    }
  }

  /// Where the parts of this node lie, in order of its ranks. Of what the node shares, a part is
  /// what a rank reserves.
  void lay_out(const std::vector<Record>& wanted) {
    const std::span<const int> ranks = world_.roster_.local_ranks();
    for (std::size_t local = 0; local < ranks.size(); ++local) {
      const std::uint64_t bytes = part_bytes(wanted[static_cast<std::size_t>(ranks[local])].bytes,
                                             total_, ranks.size() - local);
      // As much as that is nowhere; the sum of all parts may not overflow.
      constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max() / 2;
      if (bytes > kMost / shm::kMaxNodeRanks && too_large_rank_ < 0) {
        too_large_rank_ = ranks[local];
      }
      if (static_cast<int>(local) == world_.team_.local_rank) {
        offset_ = total_;
        part_bytes_ = bytes;
      }
      if (too_large_rank_ < 0) total_ += whole_pages(bytes);
    }
    if (ranks.size() > 1) {
      name_ = shm::NodeSegment::make_name(wanted[static_cast<std::size_t>(ranks[0])].random);
    }
    if (too_large_rank_ >= 0) {
      total_ = 0;
      fail(
          fmt::format("the {} of rank {} needs more bytes than there can be ({}); ask for less "
                      "there",
                      is_node_shared() ? "NodeBuffer" : "Buffer", too_large_rank_,
                      wanted[static_cast<std::size_t>(too_large_rank_)].bytes));
    }
  }

  /// What the next of `ranks_left` ranks has, behind `done` bytes.
  std::uint64_t part_bytes(std::uint64_t wanted, std::uint64_t done, std::size_t ranks_left) const {
    if (!is_node_shared()) return wanted;
    const std::uint64_t left = wanted > done ? wanted - done : 0;
    return ranks_left == 1 ? left : left / ranks_left / shm::kPageBytes * shm::kPageBytes;
  }

  template <class Action>
  void attempt(const Action& action) {
    try {
      action();
    } catch (const Error& error) {
      // Who found that the job has ended takes the name of the memory away: that is the cause then.
      world_.engine_->throw_if_dead();
      fail(error.what());
    } catch (const std::bad_alloc&) {
      fail(fmt::format("the memory of a Buffer of {} bytes: {}", mine_.bytes, base::kNoMemory));
    }
  }

  void fail(const std::string& text) {
    mine_.outcome = Outcome::Failed;
    failure_ = text;
  }

  void take() {
    if (world_.team_.local_rank != 0) entry_.memory = shm::SharedMemory::attach(name_, total_);
    if (is_node_shared()) {
      entry_.memory.take(offset_, part_bytes_);
      entry_.mine = entry_.memory.bytes().first(mine_.bytes);
    } else {
      entry_.memory.take_own(offset_, part_bytes_);
      entry_.mine = entry_.memory.own();
    }
  }

  /// To the rails.
  void make_known() {
    entry_.registered = true;
    const bool is_put_into =
        !is_node_shared() || world_.team_.local_rank == world_.roster_.talking_local_rank();
    if (world_.fabric_ == nullptr || !is_put_into) return;
    const std::uint64_t kept = world_.buffers_->registered_bytes() + mine_.bytes;
    if (kept > world_.memory_.buffer_bytes) return refuse();
    try {
      entry_.window = world_.fabric_->register_window(entry_.mine);
    } catch (const Error& error) {
      if (error.code() != Code::ResourceLimit) throw;
      base::log_info("{}", error.what());
      refuse();
    }
  }

  void refuse() {
    entry_.registered = false;
    mine_.outcome = Outcome::NotRegistered;
  }

  /// All ranks go on, or none does.
  std::vector<Record> agree() {
    std::vector<Record> found = exchange();
    const std::size_t rank = worst(found);
    if (found[rank].outcome != Outcome::Failed) return found;
    unregister();
    entry_ = {};
    if (!failure_.empty()) {
      const int to_blame = too_large_rank_ < 0 ? world_.team_.rank : too_large_rank_;
      throw Error(Code::ResourceLimit, failure_, to_blame);
    }
    base::fail_with_peer(Code::ResourceLimit, static_cast<int>(rank),
                         "rank {} did not get the memory of a Buffer of {} bytes, so no rank keeps "
                         "its own; see what rank {} says of it",
                         rank, found[rank].bytes, rank);
  }

  void unregister() {
    if (entry_.registered && world_.fabric_) world_.fabric_->unregister_window(entry_.window);
    entry_.window = {};
    entry_.registered = false;
  }

  void give_up_registration(const std::vector<Record>& found) {
    const std::size_t rank = worst(found);
    if (static_cast<int>(rank) == world_.team_.rank && !world_.warned_of_buffers_) {
      world_.warned_of_buffers_ = true;
      base::log_warning("{}", buffer_warning(world_.memory_, world_.team_.rank,
                                             world_.buffers_->registered_bytes() + mine_.bytes));
    }
    unregister();
  }

  World& world_;
  Record mine_;
  std::string name_;
  std::string failure_;
  std::uint64_t total_ = 0;   // of all ranks of this node
  std::uint64_t offset_ = 0;  // of my part
  std::uint64_t part_bytes_ = 0;
  int too_large_rank_ = -1;  // the first of this node that wants more than there can be
  BufferTable::Entry entry_;
};

BufferMemory World::allocate(std::size_t count, std::size_t element_bytes, MemoryOwner owner) {
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(count, element_bytes, &bytes)) {
    bytes = std::numeric_limits<std::uint64_t>::max();
  }
  return enter(coll::Operation::Allocate, bytes, [&]() -> BufferMemory {
    job_->engines.hand_over();
    BufferTable::Entry entry = Allocation(*this, bytes, owner).make();
    std::byte* const data = entry.mine.data();
    const bool is_empty = entry.mine.empty();
    if (!entry.memory.bytes().empty()) buffers_->add(std::move(entry));
    if (is_empty) return {};
    return BufferMemory(buffers_, data);
  });
}

void World::exchange(std::span<const std::byte> send, std::span<std::byte> receive,
                     base::Deadline deadline, coll::Operation operation) {
  static const std::string no_name;
  PlanKey key;
  key.operation = operation;
  key.bytes = send.size();
  key.algorithm = &no_name;
  const coll::Buffers buffers{send.data(), receive.data(), receive.size()};
  engine_->run(plan_for(key, {}), buffers, deadline);
}

}  // namespace allrail
