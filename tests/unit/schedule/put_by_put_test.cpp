// In which order a rank copies and puts. Alone on its node: what it gives leaves before the next
// block is copied, and what has arrived is copied out before the next one is awaited. In an
// allgather what has arrived is copied out while the next round flies, on every rank of a node.
#include <string>

#include <gtest/gtest.h>

#include "coll/allgather/allgather.hpp"
#include "coll/alltoall/alltoall.hpp"
#include "coll/broadcast/broadcast.hpp"
#include "coll/gather/gather.hpp"
#include "coll/scatter/scatter.hpp"

namespace allrail::schedule {
namespace {

constexpr std::uint64_t kBytes = 1000;

/// A letter per step: in (to the slot), out (of it), keep, put, await; flags and headers have none.
std::string order_of(const Schedule& schedule) {
  std::string letters;
  for (const Step& step : schedule.steps) {
    if (step.kind == StepKind::Put) letters += 'p';
    if (step.kind == StepKind::Await) letters += 'a';
    if (step.kind != StepKind::Copy) continue;
    letters += step.to == Memory::Slot ? 'i' : step.from == Memory::Slot ? 'o' : 'k';
  }
  return letters;
}

/// The same, with the flags of a node: tell of a stage, or wait for one.
std::string order_with_flags(const Schedule& schedule) {
  std::string letters;
  for (const Step& step : schedule.steps) {
    if (step.kind == StepKind::Publish) letters += 't' + std::to_string(step.stage);
    if (step.kind == StepKind::AwaitLocal) letters += 'w' + std::to_string(step.stage);
    letters += order_of({.steps = {step}});
  }
  return letters;
}

Schedule allgather(std::vector<int> nodes, const char* algorithm, int rank) {
  return coll::allgather::make_schedule(*coll::allgather::find_algorithm(algorithm),
                                        uniform_shape(NodeMap(std::move(nodes)), kBytes, 1, 1),
                                        rank);
}

std::string alltoall(std::vector<int> nodes, const char* algorithm, int ports) {
  PairShape shape;
  shape.map = NodeMap(std::move(nodes));
  shape.ports = ports;
  shape.uniform_bytes = kBytes;
  for (int rank = 0; rank < shape.map.ranks(); ++rank) {
    shape.send_offsets.push_back(kBytes * static_cast<std::uint64_t>(rank));
  }
  shape.receive_offsets = shape.send_offsets;
  return order_of(
      coll::alltoall::make_schedule(*coll::alltoall::find_algorithm(algorithm), shape, 0));
}

Shape four_nodes(int ports) { return uniform_shape(NodeMap({0, 1, 2, 3}), kBytes, ports, 1); }

TEST(PutByPut, Alltoall) {
  EXPECT_EQ(alltoall({0, 1, 2, 3}, "smp-direct", 3), "ipipipkaoaoao");
  // In place, what arrives in a round would overwrite what the next one gives.
  EXPECT_EQ(alltoall({0, 1, 2, 3}, "smp-direct", 1), "iiipkapoapoao");
  // Others of the node copy out as well, and wait for the flag behind each of the awaits.
  EXPECT_EQ(alltoall({0, 0, 1, 1, 2, 2}, "smp-direct", 2), "iiiiippkoaaoo");
}

TEST(PutByPut, AllgatherCopiesOutWhileTheNextRoundFlies) {
  for (const char* ring : {"ring", "smp-ring"}) {
    EXPECT_EQ(order_of(allgather({0, 1, 2, 3}, ring, 0)), "ipkapoapoao") << ring;
  }
  for (const char* doubling : {"recursive-doubling", "smp-recursive-doubling"}) {
    EXPECT_EQ(order_of(allgather({0, 1, 2, 3}, doubling, 0)), "ipkapoaoo") << doubling;
  }
}

TEST(PutByPut, AllgatherCopiesOutWhatTheLeaderHasToldOf) {
  const std::vector<int> nodes{0, 0, 1, 1, 2, 2, 3, 3};
  // A leader tells of a round as soon as it has arrived, and copies behind the next round's put.
  EXPECT_EQ(order_with_flags(allgather(nodes, "smp-ring", 0)), "it1w1pkoat2poat3poat4o");
  EXPECT_EQ(order_with_flags(allgather(nodes, "smp-ring", 1)), "it1kw1ow2ow3ow4o");
  EXPECT_EQ(order_with_flags(allgather(nodes, "smp-recursive-doubling", 0)), "it1w1pkoat2poat3oo");
  EXPECT_EQ(order_with_flags(allgather(nodes, "smp-recursive-doubling", 1)), "it1kw1ow2ow3oo");
}

TEST(PutByPut, NotOverRanksThatShareANode) {
  EXPECT_EQ(alltoall({0, 0, 1}, "direct", 2), "iippkaaoo");
  const Shape shared = uniform_shape(NodeMap({0, 0, 1}), kBytes, 2, 1);
  const auto& direct = *coll::scatter::find_algorithm("direct");
  EXPECT_EQ(order_of(coll::scatter::make_schedule(direct, shared, 0, 0)), "iippk");
}

TEST(PutByPut, RootOfAScatter) {
  const auto& direct = *coll::scatter::find_algorithm("smp-direct");
  EXPECT_EQ(order_of(coll::scatter::make_schedule(direct, four_nodes(1), 0, 0)), "ipipipk");
  EXPECT_EQ(order_of(coll::scatter::make_schedule(direct, four_nodes(3), 0, 0)), "ipipipk");
}

TEST(PutByPut, RootOfAGather) {
  const auto& direct = *coll::gather::find_algorithm("smp-direct");
  EXPECT_EQ(order_of(coll::gather::make_schedule(direct, four_nodes(3), 0, 0)), "kaoaoao");
  const auto& binomial = *coll::gather::find_algorithm("smp-binomial");
  EXPECT_EQ(order_of(coll::gather::make_schedule(binomial, four_nodes(1), 0, 0)), "kaoaoo");
}

TEST(PutByPut, RootOfABroadcast) {
  Shape shape = four_nodes(1);
  shape.segment_bytes = kBytes / 2;
  const auto& chain = *coll::broadcast::find_algorithm("smp-chain");
  EXPECT_EQ(order_of(coll::broadcast::make_schedule(chain, shape, 0, 0)), "ipip");
  // A piece goes in once, whoever it is put to.
  const auto& binomial = *coll::broadcast::find_algorithm("smp-binomial");
  EXPECT_EQ(order_of(coll::broadcast::make_schedule(binomial, shape, 0, 0)), "ipp");
}

}  // namespace
}  // namespace allrail::schedule
