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
  std::uint64_t bytes = 0;              // of every block, for operations without counts
  std::span<const std::size_t> counts;  // empty for operations without counts
  std::span<const std::size_t> displacements;
  std::size_t element_bytes = 1;
  coll::MemoryKind memory = coll::MemoryKind::Ordinary;  // that it receives into
  const std::string* algorithm = nullptr;
  int ports = 0;
  int leaders = 0;
};

class PlanCache {
 public:
  /// The plan with that key, or null. The last plan found is looked at first.
  const coll::CallPlan* find(const PlanKey& key) noexcept;
  /// Keeps a plan; the least recently used one goes when there are more than kMostPlans.
  const coll::CallPlan& keep(const PlanKey& key, std::unique_ptr<coll::CallPlan> plan);

 private:
  static constexpr std::size_t kMostPlans = 128;
  struct Entry {
    coll::Operation operation;
    std::uint64_t bytes;
    std::vector<std::size_t> counts, displacements;
    std::size_t element_bytes;
    coll::MemoryKind memory;
    std::string algorithm;
    int ports, leaders;
    std::unique_ptr<coll::CallPlan> plan;
    std::uint64_t last_use = 0;
    bool matches(const PlanKey& key) const noexcept;
  };
  std::vector<Entry> entries_;
  std::size_t last_ = 0;
  std::uint64_t uses_ = 0;
};

}  // namespace allrail
