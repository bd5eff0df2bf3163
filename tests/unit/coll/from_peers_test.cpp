// Calls in which the ranks of a node read each other's memory: when a plan takes this way, and two
// ranks in one process that do it, each with an engine over one segment.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "coll/engine.hpp"
#include "include/allrail/error.hpp"
#include "shm/peer_reader.hpp"

namespace allrail::coll {
namespace {

using schedule::Memory;
using schedule::Step;
using schedule::StepKind;

constexpr std::uint64_t kThreshold = 1000;
constexpr std::uint64_t kMappedThreshold = 100;

PlanLimits limits() {
  PlanLimits limits{1 << 20, UINT64_MAX};
  limits.single_copy_threshold_bytes = kThreshold;
  limits.mapped_threshold_bytes = kMappedThreshold;
  return limits;
}

PlanRequest request_of(int ranks, std::uint64_t bytes, MemoryKind memory = MemoryKind::Ordinary) {
  PlanRequest request;
  request.algorithm = "smp-direct";
  request.memory = memory;
  for (int rank = 0; rank < ranks; ++rank) {
    request.bytes.push_back(bytes);
    request.receive_offsets.push_back(static_cast<std::uint64_t>(rank) * bytes);
  }
  return request;
}

/// The memory that it offers; none: it goes another way.
std::vector<Memory> offers(const CallPlan& plan) {
  std::vector<Memory> found;
  for (const Step& step : plan.first().steps) {
    if (step.kind == StepKind::Offer) found.push_back(step.from);
  }
  return found;
}

TEST(FromPeersPlan, IsTakenFromAThresholdOfTheLargestBlock) {
  const Roster roster(schedule::NodeMap({0, 0, 0}), 1);
  const auto offers_of = [&](const PlanRequest& request) {
    return offers(CallPlan(request, roster, limits()));
  };
  const std::vector<Memory> none;
  const std::vector<Memory> send{Memory::Send};
  EXPECT_EQ(offers_of(request_of(3, kThreshold)), send);
  EXPECT_EQ(offers_of(request_of(3, kThreshold - 1)), none);
  PlanRequest uneven = request_of(3, 10);
  uneven.bytes[2] = kThreshold;
  EXPECT_EQ(offers_of(uneven), send);
  // A Buffer needs no system call, and each rank says for itself whether it sends from one.
  PlanRequest mapped = request_of(3, kMappedThreshold, MemoryKind::Buffer);
  EXPECT_EQ(offers_of(mapped), std::vector<Memory>{Memory::Receive});
  const std::uint64_t hash = CallPlan(mapped, roster, limits()).hash();
  mapped.send_is_mapped = true;
  EXPECT_EQ(offers_of(mapped), send);
  EXPECT_EQ(CallPlan(mapped, roster, limits()).hash(), hash);
  EXPECT_EQ(offers_of(request_of(3, kMappedThreshold - 1, MemoryKind::Buffer)), none);
  EXPECT_EQ(offers_of(request_of(3, kThreshold, MemoryKind::NodeBuffer)), none);
  // Whoever names an algorithm over ranks wants its puts.
  PlanRequest flat = request_of(3, kThreshold);
  flat.algorithm = "ring";
  EXPECT_EQ(offers_of(flat), none);
}

TEST(FromPeersPlan, IsForSeveralRanksOnOneNode) {
  for (const std::vector<int>& nodes : {std::vector{0}, std::vector{0, 0, 1}}) {
    const Roster roster(schedule::NodeMap(nodes), 0);
    const CallPlan plan(request_of(roster.ranks(), kThreshold), roster, limits());
    EXPECT_TRUE(offers(plan).empty()) << nodes.size() << " ranks";
  }
}

TEST(FromPeersPlan, NeedsNoSlotAndNoSlices) {
  const Roster roster(schedule::NodeMap({0, 0}), 0);
  const CallPlan plan(request_of(2, 100 << 20), roster, limits());
  EXPECT_EQ(plan.slices(), 1U);
  EXPECT_EQ(plan.slot_bytes(), 0U);
  EXPECT_NE(plan.hash(), CallPlan(request_of(2, 100 << 20), roster, {1 << 20, UINT64_MAX}).hash());
}

// ---- two ranks ----

constexpr std::uint64_t kBytes = 20'000;

shm::SegmentLayout layout_of_two() {
  shm::SegmentLayout layout;
  layout.ranks = 2;
  layout.small_slot_bytes = layout.large_slot_bytes = 16384;
  return shm::lay_out(layout);
}

SlotGeometry geometry() {
  SlotGeometry geometry;
  geometry.small_slot_bytes = geometry.large_slot_bytes = layout_of_two().small_slot_bytes;
  return geometry;
}

/// Allocation 5, which both ranks have mapped.
class OneAllocation final : public MappedBuffers {
 public:
  std::span<const std::byte> parts_of(std::uint64_t buffer) const noexcept override {
    return buffer == 5 ? std::span<const std::byte>(memory) : std::span<const std::byte>();
  }
  std::vector<std::byte> memory = std::vector<std::byte>(2 * kBytes);
};

struct Rank {
  Roster roster;
  std::vector<shm::SegmentLayout> layouts{{}, {}, layout_of_two()};
  shm::NodeSegment segment;
  Team team;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<CallPlan> plan;
  std::vector<std::byte> send, receive;
  CallRun run;
  std::string error;
  Code code = Code::Internal;
  int peer = -1;

  void call() {
    try {
      engine->run(*plan, run.buffers, base::Deadline::after(std::chrono::seconds(20)));
    } catch (const Error& thrown) {
      error = thrown.what();
      code = thrown.code();
      peer = thrown.peer();
    }
  }
};

class FromPeersCall : public testing::Test {
 protected:
  FromPeersCall() : reader_({::getpid(), ::getpid()}) {
    auto views = shm::NodeSegment::in_memory(layout_of_two());
    for (int rank = 0; rank < 2; ++rank) {
      Rank& one = ranks_[static_cast<std::size_t>(rank)];
      one.roster = Roster(schedule::NodeMap({0, 0}), rank);
      one.segment = std::move(views[static_cast<std::size_t>(rank)]);
      one.team.rank = one.team.local_rank = rank;
      one.team.roster = &one.roster;
      one.team.layouts = &one.layouts;
      one.team.segment = &one.segment;
      one.team.reader = &reader_;
      one.team.buffers = &allocation_;
      one.team.wait_policy = shm::WaitPolicy::choose(true);
      one.engine = std::make_unique<Engine>(one.team, geometry(), 1);
      one.send.assign(kBytes, static_cast<std::byte>(rank + 1));
    }
  }
  void plan(MemoryKind memory, bool send_is_mapped = false) {
    PlanRequest request = request_of(2, kBytes, memory);
    request.send_is_mapped = send_is_mapped;
    for (Rank& one : ranks_) {
      one.plan = std::make_unique<CallPlan>(request, one.roster, limits());
      one.receive.assign(2 * kBytes, std::byte{0xEE});
      one.run.plan = one.plan.get();
      one.run.buffers = {one.send.data(), one.receive.data(), 2 * kBytes, kBytes};
    }
  }
  void call_on_both() {
    std::thread other([this] { ranks_[1].call(); });
    ranks_[0].call();
    other.join();
  }
  void expect_right() {
    for (const Rank& one : ranks_) {
      EXPECT_EQ(one.error, "");
      for (const std::size_t block : {0, 1}) {
        const auto bytes = std::span(one.receive).subspan(block * kBytes, kBytes);
        EXPECT_EQ(std::ranges::count(bytes, ranks_[block].send[0]),
                  static_cast<std::ptrdiff_t>(kBytes))
            << "rank " << one.team.rank << ", block " << block;
      }
    }
  }

  shm::PeerReader reader_;
  OneAllocation allocation_;
  std::array<Rank, 2> ranks_;
};

TEST_F(FromPeersCall, ReadsMemoryOfTheOtherProcess) {
  plan(MemoryKind::Ordinary);
  // More calls than there are slots, with other bytes in each.
  for (int number = 0; number < 50; ++number) {
    for (Rank& one : ranks_)
      std::ranges::fill(one.send, static_cast<std::byte>(number * 2 + one.team.rank));
    call_on_both();
    ASSERT_NO_FATAL_FAILURE(expect_right());
  }
}

TEST_F(FromPeersCall, ReadsBuffersWithoutASystemCall) {
  plan(MemoryKind::Buffer, true);
  for (Rank& one : ranks_) {
    one.team.reader = nullptr;
    const auto offset = static_cast<std::uint64_t>(one.team.rank) * kBytes;
    std::ranges::copy(one.send, allocation_.memory.begin() + static_cast<std::ptrdiff_t>(offset));
    one.run.buffers.send_place = {5, offset};
  }
  call_on_both();
  expect_right();
}

class UnknownPlace : public FromPeersCall, public testing::WithParamInterface<SharedPlace> {};

INSTANTIATE_TEST_SUITE_P(Places, UnknownPlace,
                         testing::Values(SharedPlace{6, 0}, SharedPlace{5, kBytes + 1},
                                         SharedPlace{5, UINT64_MAX - 10}));

TEST_P(UnknownPlace, IsAMismatch) {
  plan(MemoryKind::Buffer, true);
  ranks_[0].run.buffers.send_place = {5, 0};
  ranks_[1].run.buffers.send_place = GetParam();
  call_on_both();
  for (const Rank& one : ranks_) {
    EXPECT_EQ(one.code, Code::Mismatch) << one.error;
    EXPECT_EQ(one.peer, 1);
    EXPECT_NE(one.error.find("in a Buffer that is not known here"), std::string::npos);
  }
}

TEST_F(FromPeersCall, WhatIsNoMemoryIsAnErrorOnAllRanks) {
  plan(MemoryKind::Ordinary);
  void* const hole = ::mmap(nullptr, 2 * kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hole, MAP_FAILED);
  // In place, so that rank 1 does not touch it itself.
  ranks_[1].run.buffers.receive = static_cast<std::byte*>(hole);
  ranks_[1].run.buffers.send = ranks_[1].run.buffers.receive + kBytes;
  call_on_both();
  for (const Rank& one : ranks_) {
    EXPECT_EQ(one.code, Code::InvalidArgument) << one.error;
    EXPECT_NE(one.error.find("must stay mapped"), std::string::npos) << one.error;
  }
  ::munmap(hole, 2 * kBytes);
}

TEST_F(FromPeersCall, WhatIsReadBehindTheOwnersErrorDoesNotCount) {
  plan(MemoryKind::Ordinary);
  Rank& one = ranks_[0];
  Rank& other = ranks_[1];
  other.engine->start(other.run);
  one.engine->start(one.run);  // it has read the other's block, and its own may still be read
  ASSERT_NE(one.run.state, CallRun::State::Ended);
  one.segment.set_abort(static_cast<int>(Code::Timeout), 1, "rank 0: something");
  std::ranges::fill(one.send, std::byte{0x77});  // its owner goes on with it
  EXPECT_THROW((void)other.engine->test(other.run), Error);
  EXPECT_NE(other.run.state, CallRun::State::Ended);
}

}  // namespace
}  // namespace allrail::coll
