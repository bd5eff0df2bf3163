// Allgathers by a ring and chains: where blocks are cut, that every byte arrives, and how many
// cross the rails.
#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "coll/allgather/allgather.hpp"
#include "coll/plan.hpp"
#include "coll/recipe.hpp"
#include "coll/schedule/replay.hpp"
#include "tests/property/schedule/random_shape.hpp"

namespace allrail::coll {
namespace {

using allgather::cut_for_ring_chain;
using Bytes = std::vector<std::uint64_t>;

constexpr std::uint64_t kMebi = 1 << 20;

schedule::NodeMap nodes(int count, int ranks_each = 1) {
  std::vector<int> node_of;
  for (int rank = 0; rank < count * ranks_each; ++rank) node_of.push_back(rank / ranks_each);
  return schedule::NodeMap(node_of);
}

TEST(RingChainCut, IsWhereTheFewestBytesFollowEachOther) {
  // All that is in one block goes in a chain.
  EXPECT_EQ(cut_for_ring_chain(nodes(4), Bytes{0, 0, 4 * kMebi, 0}).level_bytes, 0U);
  // What the others have as well goes around the ring.
  EXPECT_EQ(cut_for_ring_chain(nodes(4), Bytes{kMebi, kMebi, 8 * kMebi, kMebi}).level_bytes, kMebi);
  // Two nodes with as much as others have together: cutting both costs less than one ring of them.
  EXPECT_EQ(cut_for_ring_chain(nodes(4), Bytes{0, 4 * kMebi, 4 * kMebi, 0}).level_bytes, 0U);
  // It is the node's bytes that count: one rank has all of them here, as the other node's two.
  const Bytes halves{2 * kMebi, 0, kMebi, kMebi, kMebi, kMebi, 0, 2 * kMebi};
  EXPECT_EQ(cut_for_ring_chain(nodes(4, 2), halves).level_bytes, 2 * kMebi);
}

TEST(RingChainCut, LeavesAloneWhatIsEvenOrOfFewNodes) {
  for (const Bytes& bytes : {Bytes(4, kMebi), Bytes(4, 0)}) {
    const auto cut = cut_for_ring_chain(nodes(4), bytes);
    EXPECT_EQ(cut.level_bytes, std::ranges::max(bytes));
    EXPECT_GE(cut.cost, 1);
  }
  EXPECT_EQ(cut_for_ring_chain(nodes(2), Bytes{0, kMebi}).level_bytes, kMebi);
  EXPECT_EQ(cut_for_ring_chain(nodes(1, 3), Bytes{0, kMebi, 0}).level_bytes, kMebi);
}

TEST(RingChainCut, SaysWhatItSaves) {
  // 4 MiB twice by doubling, once by a chain, and what its pieces cost.
  const double single = cut_for_ring_chain(nodes(4), Bytes{0, 0, 4 * kMebi, 0}).cost;
  EXPECT_GT(single, 1.0 / 2);
  EXPECT_LT(single, 0.6);
  // Of a ramp a ring has three times the longest.
  const Bytes ramp{kMebi, 3 * kMebi, 5 * kMebi, 7 * kMebi};
  const double cut = cut_for_ring_chain(nodes(4), ramp).cost;
  EXPECT_GT(cut, 15.0 / 21);
  EXPECT_LT(cut, 0.8);
  // Chains of many nodes have many steps.
  for (const int count : {8, 64, 256}) {
    Bytes one(static_cast<std::size_t>(count), 0);
    one[1] = 16 << 10;
    EXPECT_GT(cut_for_ring_chain(nodes(count), one).cost, 0.9) << count << " nodes";
  }
  // As fast as two steps alone, and half as long in the way of the next call.
  const double row = cut_for_ring_chain(nodes(4), Bytes{0, kMebi / 16, 0, 0}).cost;
  EXPECT_DOUBLE_EQ(row, 0.75);
}

// What counts below the level is the node, so it may lie where no block ends.
TEST(RingChainCut, IsWhereANodeWithOneBlockHasAsMuchAsOthers) {
  Bytes bytes(32, kMebi);
  std::fill(bytes.begin() + 8, bytes.begin() + 16, 0);
  bytes[12] = 14 * kMebi;
  EXPECT_EQ(cut_for_ring_chain(nodes(4, 8), bytes).level_bytes, 8 * kMebi);
}

TEST(RingChainCut, HasFewChainsOfManyRanks) {
  Bytes bytes;
  for (std::uint64_t rank = 0; rank < 500; ++rank) bytes.push_back(rank % 2 * kMebi + rank * 4096);
  const std::uint64_t level = cut_for_ring_chain(nodes(250, 2), bytes).level_bytes;
  EXPECT_LT(level, std::ranges::max(bytes));
  EXPECT_LE(std::ranges::count_if(bytes, [=](std::uint64_t block) { return block > level; }), 32);
}

/// A job, and the plans of all its ranks.
class Job {
 public:
  Job(const schedule::Shape& shape, bool displaced, std::uint64_t slot_bytes) : shape_(shape) {
    request_.operation = Operation::Allgatherv;
    request_.algorithm = allgather::kRingChain;
    request_.bytes = shape.bytes;
    request_.receive_offsets = shape.receive_offsets;
    request_.displaced = displaced;
    request_.ports = shape.ports;
    request_.leaders = shape.leaders;
    const PlanLimits limits{.large_slot_bytes = slot_bytes};
    for (int rank = 0; rank < shape.ranks(); ++rank) rosters_.emplace_back(shape.map, rank);
    for (const Roster& roster : rosters_) {
      plans_.push_back(std::make_unique<CallPlan>(request_, roster, limits));
      if (displaced) plans_.back()->keep_all_slices();
    }
    level_ = cut_for_ring_chain(shape.map, shape.bytes).level_bytes;
  }

  const CallPlan& plan(int rank = 0) const { return *plans_[static_cast<std::size_t>(rank)]; }
  std::uint64_t level() const { return level_; }

  /// Every slice as a call of its own, with what it is for. `taken` counts the bytes of every
  /// block that some slice is for.
  std::vector<schedule::ReplayCall> calls(Bytes& taken) const {
    std::vector<schedule::ReplayCall> made;
    taken.assign(request_.bytes.size(), 0);
    int owner = -1;  // of the chain
    for (std::uint64_t slice = 0; slice < plan().slices(); ++slice) {
      const std::uint64_t begin = plan().slice_begin(slice);
      if (begin == level_) owner = next_owner(owner);
      made.push_back(call_of(slice, owner, taken));
    }
    return made;
  }

  /// What each node sends to others, headers included.
  Bytes sent_bytes() const {
    Bytes sent(static_cast<std::size_t>(shape_.map.nodes()));
    for (int rank = 0; rank < shape_.ranks(); ++rank) {
      for (std::uint64_t slice = 0; slice < plan().slices(); ++slice) {
        const auto schedule = plan(rank).schedule(slice);
        for (const schedule::Step& step : schedule->steps) {
          if (step.kind == schedule::StepKind::Put) {
            sent[static_cast<std::size_t>(shape_.map.node_of[rank])] += step.bytes;
          }
        }
      }
    }
    return sent;
  }

 private:
  int next_owner(int owner) const {
    do ++owner;
    while (request_.bytes[static_cast<std::size_t>(owner)] <= level_);
    return owner;
  }

  schedule::ReplayCall call_of(std::uint64_t slice, int owner, Bytes& taken) const {
    const std::uint64_t begin = plan().slice_begin(slice);
    const std::uint64_t next = slice + 1 < plan().slices() ? plan().slice_begin(slice + 1) : 0;
    schedule::Purpose purpose;
    std::vector<schedule::Received> received;
    for (int rank = 0; rank < shape_.ranks(); ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      const std::uint64_t block = request_.bytes[at];
      const std::uint64_t end = owner < 0 ? std::min(block, level_) : rank == owner ? block : 0;
      std::uint64_t bytes = end > begin ? end - begin : 0;
      if (next > begin) bytes = std::min(bytes, next - begin);
      purpose.send_bytes.push_back(bytes);
      if (bytes > 0) received.push_back({rank, 0, request_.receive_offsets[at], bytes});
      EXPECT_TRUE(bytes == 0 || begin == taken[at]) << "slice " << slice << " of rank " << rank;
      taken[at] += bytes;
    }
    purpose.received.assign(static_cast<std::size_t>(shape_.ranks()), received);
    std::vector<schedule::Schedule> schedules;
    for (const auto& plan : plans_) {
      EXPECT_EQ(plan->slices(), this->plan().slices());
      EXPECT_EQ(plan->slice_begin(slice), begin);
      EXPECT_EQ(plan->slot_bytes(), this->plan().slot_bytes());
      schedules.push_back(*plan->schedule(slice));
      EXPECT_LE(schedules.back().slot_bytes, plan->slot_bytes());
    }
    schedule::Shape cut = shape_;
    cut.bytes = purpose.send_bytes;
    return {std::move(cut), std::move(schedules), std::move(purpose)};
  }

  schedule::Shape shape_;
  PlanRequest request_;
  std::vector<Roster> rosters_;
  std::vector<std::unique_ptr<CallPlan>> plans_;
  std::uint64_t level_ = 0;
};

TEST(RingChain, BringsEveryByteOfRandomBlocks) {
  int cut = 0;
  int sliced = 0;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    schedule::testing::Generator generator(seed);
    auto map = schedule::testing::random_map(generator, generator.number(4, 9));
    while (map.nodes() < 3) map = schedule::testing::random_map(generator, map.ranks());
    auto shape = schedule::testing::random_shape(generator, map, generator.number(1, 2),
                                                 generator.number(1, 2), 1);
    // Sizes of which many are nothing and some the same, and offsets with gaps or not.
    std::uint64_t end = 0;
    for (std::size_t rank = 0; rank < shape.bytes.size(); ++rank) {
      const int kind = generator.number(0, 5);
      shape.bytes[rank] = static_cast<std::uint64_t>(kind < 3    ? 0
                                                     : kind == 5 ? 40'000
                                                     : kind == 3 ? generator.number(1, 5000)
                                                                 : generator.number(1, 50'000));
      shape.receive_offsets[rank] = end;
      end += shape.bytes[rank] + (seed % 2 == 0 ? static_cast<std::uint64_t>(rank) : 0);
    }
    const Job job(shape, seed % 2 == 0, generator.number(0, 1) == 0 ? 12 << 10 : 1 << 20);
    Bytes taken;
    const auto calls = job.calls(taken);
    EXPECT_EQ(taken, shape.bytes) << "seed " << seed;
    cut += job.level() < std::ranges::max(shape.bytes) ? 1 : 0;
    bool goes_on = false;
    for (std::uint64_t slice = 0; slice < job.plan().slices(); ++slice) {
      goes_on |= job.plan().slice_begin(slice) > job.level();
    }
    sliced += goes_on ? 1 : 0;
    const auto violations = schedule::replay(calls, {.seed = seed, .slots = 3});
    ASSERT_TRUE(violations.empty()) << "seed " << seed << schedule::testing::sentences(violations);
  }
  EXPECT_GT(cut, 5);
  EXPECT_GT(sliced, 3);
}

TEST(RingChain, SendsABlockThatIsAloneOnceFromEveryNode) {
  const auto shape = schedule::packed_shape(nodes(4, 2), {0, 0, 0, 4 * kMebi, 0, 0, 0, 0}, 1, 1);
  const Job job(shape, false, 8 * kMebi);
  const Bytes sent = job.sent_bytes();
  for (const std::uint64_t bytes : sent) EXPECT_LE(bytes, 4 * kMebi * 101 / 100);
  EXPECT_EQ(std::ranges::count(sent, 0U), 1) << "the last node of the chain";
  // Nobody has less than this to receive, so less cannot be sent.
  EXPECT_GE(std::accumulate(sent.begin(), sent.end(), std::uint64_t{0}), 12 * kMebi);
}

// docs/algorithms.md: (n-1) B(L) + E(L).
TEST(RingChain, SendsWhatIsBelowTheLevelAroundTheRing) {
  const Bytes bytes{kMebi, kMebi, 8 * kMebi, kMebi};
  const Job job(schedule::packed_shape(nodes(4), bytes, 1, 1), false, 8 * kMebi);
  const std::uint64_t busiest = std::ranges::max(job.sent_bytes());
  EXPECT_GE(busiest, (3 + 7) * kMebi);
  EXPECT_LE(busiest, (3 + 7) * kMebi * 101 / 100);
}

TEST(RingChain, IsNamedByItsOwnRowWhateverItBeginsWith) {
  for (const std::uint64_t others : {std::uint64_t{0}, kMebi}) {
    const auto shape = schedule::packed_shape(nodes(3), {others, 9 * kMebi, others}, 1, 1);
    const Job job(shape, false, 1 << 20);
    EXPECT_EQ(job.level(), others);
    const auto row = job.plan().description().algorithm;
    EXPECT_EQ(algorithm_name(Operation::Allgatherv, row), allgather::kRingChain);
  }
}

TEST(RingChain, CutsNothingThatANodeShares) {
  const Roster roster(nodes(3, 2), 0);
  PlanRequest request;
  request.operation = Operation::Allgatherv;
  request.algorithm = allgather::kRingChain;
  request.bytes = {0, 0, kMebi, 0, 0, 0};
  request.receive_offsets = {0, 0, 0, kMebi, kMebi, kMebi};
  const PlanLimits limits{.large_slot_bytes = 8 * kMebi, .node_buffer_threshold_bytes = kMebi / 4};
  for (const auto memory : {MemoryKind::NodeBuffer, MemoryKind::CopiedNodeBuffer}) {
    request.memory = memory;
    request.algorithm = allgather::kRingChain;
    const CallPlan named(request, roster, limits);
    request.algorithm = "smp-ring";
    EXPECT_EQ(named.first().steps, CallPlan(request, roster, limits).first().steps);
  }
}

TEST(RingChain, TellsThePlanOfThePeersOfAllItsParts) {
  const auto shape = schedule::packed_shape(nodes(4), {9 * kMebi, 0, 0, 9 * kMebi}, 1, 1);
  const Job job(shape, false, 1 << 20);
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<int> met;
    for (std::uint64_t slice = 0; slice < job.plan(rank).slices(); ++slice) {
      const auto schedule = job.plan(rank).schedule(slice);
      for (const schedule::Step& step : schedule->steps) {
        if (step.kind == schedule::StepKind::Put || step.kind == schedule::StepKind::Await) {
          met.push_back(step.peer);
        }
      }
    }
    std::ranges::sort(met);
    met.erase(std::unique(met.begin(), met.end()), met.end());
    EXPECT_EQ(job.plan(rank).peers(), met);
  }
}

TEST(RingChain, KeepsFewSchedulesOfManySlices) {
  const auto shape = schedule::packed_shape(nodes(3), {kMebi, 9 * kMebi, 8 * kMebi}, 1, 1);
  const Roster roster(shape.map, 0);
  PlanRequest request;
  request.operation = Operation::Allgatherv;
  request.algorithm = allgather::kRingChain;
  request.bytes = shape.bytes;
  request.receive_offsets = shape.receive_offsets;
  const PlanLimits limits{.large_slot_bytes = 128 << 10};
  const CallPlan makes(request, roster, limits);
  CallPlan plan(request, roster, limits);
  ASSERT_GT(plan.slices(), 100U);
  plan.keep_all_slices();
  std::map<const schedule::Schedule*, int> kept;
  for (std::uint64_t i = 0; i < plan.slices(); ++i) {
    ++kept[plan.schedule(i).get()];
    ASSERT_EQ(plan.schedule(i)->steps, makes.schedule(i)->steps) << "slice " << i;
  }
  EXPECT_LE(kept.size(), 6U) << "of the ring and of two chains, each with a shorter end";
}

}  // namespace
}  // namespace allrail::coll
