#include "lib/plan_cache.hpp"

#include <algorithm>

namespace allrail {
namespace {

bool is_plain_allgather(const PlanKey& key) noexcept {
  return key.operation == coll::Operation::Allgather && key.algorithm->empty() && key.ports == 0 &&
         key.leaders == 0;
}

}  // namespace

bool PlanCache::Entry::matches(const PlanKey& key) const noexcept {
  return operation == key.operation && root == key.root && bytes == key.bytes &&
         ports == key.ports && leaders == key.leaders && memory == key.memory &&
         send_is_mapped == key.send_is_mapped && algorithm == *key.algorithm &&
         element_bytes == key.element_bytes && std::ranges::equal(counts, key.counts) &&
         std::ranges::equal(displacements, key.displacements);
}

PlanCache::Entry* PlanCache::look_for(const PlanKey& key) noexcept {
  for (Entry& entry : entries_) {
    if (entry.matches(key)) return &entry;
  }
  return nullptr;
}

const coll::CallPlan& PlanCache::keep(const PlanKey& key, std::unique_ptr<coll::CallPlan> plan) {
  last_ = nullptr;
  if (entries_.size() >= kMostPlans) {
    entries_.erase(std::ranges::min_element(entries_, {}, &Entry::last_use));
  }
  entries_.push_back({key.operation,
                      key.root,
                      key.bytes,
                      {key.counts.begin(), key.counts.end()},
                      {key.displacements.begin(), key.displacements.end()},
                      key.element_bytes,
                      key.memory,
                      key.send_is_mapped,
                      *key.algorithm,
                      key.ports,
                      key.leaders,
                      std::move(plan),
                      ++uses_,
                      is_plain_allgather(key)});
  last_ = &entries_.back();
  return *last_->plan;
}

}  // namespace allrail
