// Two ranks of a node, in one process, wait for a third one in a call into memory that all have. It
// ends with an error: neither has that before both have given the call up.
#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "coll/engine.hpp"
#include "include/allrail/error.hpp"
#include "tests/unit/coll/engine_rank.hpp"

namespace allrail::coll {
namespace {

using testing::geometry;

constexpr int kRanks = 3;
constexpr std::uint64_t kBytes = 1000;

class NodeEnd : public ::testing::TestWithParam<MemoryKind> {
 protected:
  struct Rank {
    Roster roster;
    Team team;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<CallPlan> plan;
    std::vector<std::byte> send = std::vector<std::byte>(kBytes);
    CallRun run;
  };

  void SetUp() override {
    for (int number = 0; number < 2; ++number) {
      Rank& rank = at(number);
      rank.roster = Roster(schedule::NodeMap({0, 0, 0}), number);
      rank.team.rank = rank.team.local_rank = number;
      rank.team.roster = &rank.roster;
      rank.team.layouts = &layouts_;
      rank.team.segment = &segments_[static_cast<std::size_t>(number)];
      rank.engine = std::make_unique<Engine>(rank.team, geometry(), 1);
      PlanRequest request;
      request.algorithm = "smp-direct";
      request.memory = GetParam();
      request.bytes = {kBytes, kBytes, kBytes};
      request.receive_offsets = {0, kBytes, 2 * kBytes};
      rank.plan = std::make_unique<CallPlan>(request, rank.roster,
                                             PlanLimits{geometry().large_slot_bytes, UINT64_MAX});
      rank.run.plan = rank.plan.get();
      rank.run.buffers = {rank.send.data(), shared_.data(), shared_.size()};
      rank.run.buffers.place = 5;
    }
  }
  bool gave_up(int number) { return segments_[0].line(number).gave_up.load() != 0; }
  Rank& at(int number) { return ranks_[static_cast<std::size_t>(number)]; }

  std::vector<shm::SegmentLayout> layouts_{{}, {}, {}, testing::layout_of(kRanks)};
  std::vector<shm::NodeSegment> segments_ = shm::NodeSegment::in_memory(layouts_[3]);
  std::vector<std::byte> shared_ = std::vector<std::byte>(3 * kBytes);
  std::array<Rank, 2> ranks_;
};

TEST_P(NodeEnd, IsToldWhenBothHaveGivenUp) {
  for (int number = 0; number < 2; ++number) at(number).engine->start(at(number).run);
  ASSERT_EQ(at(1).run.state, CallRun::State::InFlight);
  segments_[0].set_abort(static_cast<int>(Code::PeerLost), 2, "rank 2 left");
  segments_[0].line(2).state = shm::RankState::Goodbye;
  std::thread computes([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_THROW(at(0).engine->test(at(0).run), Error);
  });
  EXPECT_THROW(at(1).engine->wait(at(1).run), Error);
  EXPECT_TRUE(gave_up(0) && gave_up(1));
  EXPECT_EQ(at(0).run.state, CallRun::State::Failed) << "it may still write into this memory";
  computes.join();
}

TEST_P(NodeEnd, IsToldThoughOneNeverGivesUp) {
  for (int number = 0; number < 2; ++number) at(number).engine->start(at(number).run);
  segments_[0].set_abort(static_cast<int>(Code::Timeout), 0, "a call took too long");
  EXPECT_THROW(at(1).engine->wait(at(1).run), Error);
  EXPECT_TRUE(!gave_up(0) && gave_up(1));
  EXPECT_THROW(at(1).engine->throw_if_dead(), Error);
}

INSTANTIATE_TEST_SUITE_P(EachKind, NodeEnd,
                         ::testing::Values(MemoryKind::NodeBuffer, MemoryKind::CopiedNodeBuffer));

}  // namespace
}  // namespace allrail::coll
