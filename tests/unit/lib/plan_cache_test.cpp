// A plan is found again by all that a call says, and by nothing less.
#include "lib/plan_cache.hpp"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace allrail {
namespace {

constexpr std::size_t kCounts[] = {8, 8};
constexpr std::size_t kOtherCounts[] = {8, 9};
constexpr std::size_t kPlaces[] = {8, 0};
const std::string kNone;
const std::string kRing = "smp-ring";

PlanKey plain_key() {
  PlanKey key;
  key.operation = coll::Operation::Alltoall;
  key.bytes = 8;
  key.algorithm = &kNone;
  return key;
}

std::unique_ptr<coll::CallPlan> make_plan(const coll::Roster& roster) {
  coll::PlanRequest request;
  request.bytes = {8, 8};
  request.receive_offsets = {0, 8};
  request.algorithm = "smp-direct";
  return std::make_unique<coll::CallPlan>(request, roster, coll::PlanLimits{64 << 10, UINT64_MAX});
}

TEST(PlanCache, TellsCallsApartThatDifferInAnything) {
  const std::vector<std::function<void(PlanKey&)>> differences = {
      [](PlanKey& key) { key.operation = coll::Operation::Gather; },
      [](PlanKey& key) { key.root = 1; },
      [](PlanKey& key) { key.bytes = 9; },
      [](PlanKey& key) { key.counts = kCounts; },
      [](PlanKey& key) { key.counts = kOtherCounts; },
      [](PlanKey& key) { key.displacements = kPlaces; },
      [](PlanKey& key) { key.element_bytes = 4; },
      [](PlanKey& key) { key.memory = coll::MemoryKind::Buffer; },
      [](PlanKey& key) { key.send_is_mapped = true; },
      [](PlanKey& key) { key.algorithm = &kRing; },
      [](PlanKey& key) { key.ports = 2; },
      [](PlanKey& key) { key.leaders = 2; },
  };
  const coll::Roster roster(schedule::NodeMap({0, 1}), 0);
  PlanCache cache;
  const coll::CallPlan* const plain = &cache.keep(plain_key(), make_plan(roster));
  std::vector<const coll::CallPlan*> kept;
  for (const auto& differ : differences) {
    PlanKey key = plain_key();
    differ(key);
    EXPECT_EQ(cache.find(key), nullptr) << "difference " << kept.size();
    kept.push_back(&cache.keep(key, make_plan(roster)));
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    PlanKey key = plain_key();
    differences[i](key);
    EXPECT_EQ(cache.find(key), kept[i]) << "difference " << i;
  }
  EXPECT_EQ(cache.find(plain_key()), plain);
}

TEST(PlanCache, LetsThePlanGoThatWasNotUsedForLongest) {
  const coll::Roster roster(schedule::NodeMap({0, 1}), 0);
  PlanCache cache;
  PlanKey key = plain_key();
  constexpr std::uint64_t kMost = 128;
  for (key.bytes = 1; key.bytes <= kMost; ++key.bytes) cache.keep(key, make_plan(roster));
  key.bytes = 1;
  EXPECT_NE(cache.find(key), nullptr);
  key.bytes = kMost + 1;
  cache.keep(key, make_plan(roster));
  key.bytes = 1;
  EXPECT_NE(cache.find(key), nullptr) << "it was used since";
  key.bytes = 2;
  EXPECT_EQ(cache.find(key), nullptr);
}

TEST(PlanCache, FindsAPlainAllgatherByItsSizeOnlyWhereItWasTheLast) {
  const coll::Roster roster(schedule::NodeMap({0, 1}), 0);
  PlanCache cache;
  PlanKey key = plain_key();
  key.operation = coll::Operation::Allgather;
  const coll::CallPlan* const plan = &cache.keep(key, make_plan(roster));
  using coll::MemoryKind;
  EXPECT_EQ(cache.find_plain_allgather(8, MemoryKind::Ordinary, false), plan);
  EXPECT_EQ(cache.find_plain_allgather(9, MemoryKind::Ordinary, false), nullptr);
  EXPECT_EQ(cache.find_plain_allgather(8, MemoryKind::Buffer, false), nullptr);
  EXPECT_EQ(cache.find_plain_allgather(8, MemoryKind::Ordinary, true), nullptr);
  key.leaders = 2;
  cache.keep(key, make_plan(roster));
  EXPECT_EQ(cache.find_plain_allgather(8, MemoryKind::Ordinary, false), nullptr);
}

}  // namespace
}  // namespace allrail
