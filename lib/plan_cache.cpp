#include "lib/plan_cache.hpp"

#include <algorithm>

namespace allrail {

bool PlanCache::Entry::matches(const PlanKey& key) const noexcept {
  return operation == key.operation && bytes == key.bytes && ports == key.ports &&
         leaders == key.leaders && memory == key.memory && algorithm == *key.algorithm &&
         element_bytes == key.element_bytes && std::ranges::equal(counts, key.counts) &&
         std::ranges::equal(displacements, key.displacements);
}

const coll::CallPlan* PlanCache::find(const PlanKey& key) noexcept {
  ++uses_;
  if (last_ < entries_.size() && entries_[last_].matches(key)) {
    entries_[last_].last_use = uses_;
    return entries_[last_].plan.get();
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].matches(key)) continue;
    last_ = i;
    entries_[i].last_use = uses_;
    return entries_[i].plan.get();
  }
  return nullptr;
}

const coll::CallPlan& PlanCache::keep(const PlanKey& key, std::unique_ptr<coll::CallPlan> plan) {
  if (entries_.size() >= kMostPlans) {
    entries_.erase(std::ranges::min_element(entries_, {}, &Entry::last_use));
  }
  entries_.push_back({key.operation,
                      key.bytes,
                      {key.counts.begin(), key.counts.end()},
                      {key.displacements.begin(), key.displacements.end()},
                      key.element_bytes,
                      key.memory,
                      *key.algorithm,
                      key.ports,
                      key.leaders,
                      std::move(plan),
                      uses_});
  last_ = entries_.size() - 1;
  return *entries_.back().plan;
}

}  // namespace allrail
