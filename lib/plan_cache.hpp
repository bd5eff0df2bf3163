// Plans of earlier calls, found again by what the call says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coll/plan.hpp"

namespace allrail {

/// What a caller said, before anything is resolved. Two calls with equal keys have the same plan.
struct PlanKey {
  coll::Operation operation = coll::Operation::Allgather;
  int root = -1;                        // of operations that have one
  std::uint64_t bytes = 0;              // of every block, for operations without counts
  std::span<const std::size_t> counts;  // empty for operations without counts
  std::span<const std::size_t> displacements;
  std::size_t element_bytes = 1;
  coll::MemoryKind memory = coll::MemoryKind::Ordinary;  // that it receives into
  bool send_is_mapped = false;  // of calls into Buffers: it is sent from one
  const std::string* algorithm = nullptr;
  int ports = 0;
  int leaders = 0;
};

class PlanCache {
 public:
  PlanCache() = default;
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;

  /// The plan with that key, or null. The last plan found is looked at first.
  const coll::CallPlan* find(const PlanKey& key) noexcept {
    if (last_ == nullptr || !last_->matches(key)) last_ = look_for(key);
    if (last_ == nullptr) return nullptr;
    last_->last_use = ++uses_;
    return last_->plan.get();
  }
  /// The plan of an allgather of equal blocks for which nothing but its memory was said, if such a
  /// call used the last plan found. A key has more words than such a call has left to do.
  const coll::CallPlan* find_plain_allgather(std::uint64_t bytes, coll::MemoryKind memory,
                                             bool send_is_mapped) noexcept {
    if (last_ == nullptr || !last_->is_plain_allgather || last_->bytes != bytes ||
        last_->memory != memory || last_->send_is_mapped != send_is_mapped) {
      return nullptr;
    }
    last_->last_use = ++uses_;
    return last_->plan.get();
  }
  /// Keeps a plan; the least recently used one goes when there are more than kMostPlans.
  const coll::CallPlan& keep(const PlanKey& key, std::unique_ptr<coll::CallPlan> plan);

 private:
  static constexpr std::size_t kMostPlans = 128;
  struct Entry {
    coll::Operation operation;
    int root;
    std::uint64_t bytes;
    std::vector<std::size_t> counts, displacements;
    std::size_t element_bytes;
    coll::MemoryKind memory;
    bool send_is_mapped;
    std::string algorithm;
    int ports, leaders;
    std::unique_ptr<coll::CallPlan> plan;
    std::uint64_t last_use = 0;
    bool is_plain_allgather = false;
    bool matches(const PlanKey& key) const noexcept;
  };
  Entry* look_for(const PlanKey& key) noexcept;

  std::vector<Entry> entries_;
  Entry* last_ = nullptr;  // that was found or kept last; one of entries_
  std::uint64_t uses_ = 0;
};

}  // namespace allrail
