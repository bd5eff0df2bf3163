// Two ranks of a node with two communicators, all in one process: what a rank does in one of them
// while it is called in the other.
#include "coll/engine_group.hpp"

#include <array>
#include <limits>
#include <thread>

#include <gtest/gtest.h>

#include "coll/engine.hpp"
#include "include/allrail/error.hpp"

namespace allrail::coll {
namespace {

constexpr std::uint64_t kBytes = 1000;

SlotGeometry geometry() {
  SlotGeometry geometry;
  geometry.small_slot_bytes = geometry.large_slot_bytes = 16384;
  return geometry;
}

shm::SegmentLayout layout_of_two() {
  shm::SegmentLayout layout;
  layout.ranks = 2;
  layout.small_slot_bytes = layout.large_slot_bytes = geometry().small_slot_bytes;
  return shm::lay_out(layout);
}

/// One rank in one communicator, with an allgather that it can make there.
struct Member {
  Roster roster;
  Team team;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<CallPlan> plan;
  std::vector<std::byte> send, receive;
  CallRun run;

  Member(int rank, shm::NodeSegment& segment, const std::vector<shm::SegmentLayout>& layouts)
      : roster(schedule::NodeMap({0, 0}), rank),
        send(kBytes, static_cast<std::byte>(rank + 1)),
        receive(2 * kBytes) {
    team.rank = team.local_rank = rank;
    team.roster = &roster;
    team.layouts = &layouts;
    team.segment = &segment;
  }
  void start_engine(EngineGroup* group, const std::string& name, std::uint64_t identity) {
    team.group = group;
    team.name = name;
    engine = std::make_unique<Engine>(team, geometry(), identity);
    if (group != nullptr) group->join(*engine);
    PlanRequest request;
    request.algorithm = "direct";
    request.bytes = {kBytes, kBytes};
    request.receive_offsets = {0, kBytes};
    plan = std::make_unique<CallPlan>(request, roster,
                                      PlanLimits{geometry().large_slot_bytes, kBytes});
    run.plan = plan.get();
    run.buffers = {send.data(), receive.data(), receive.size()};
  }
  /// Blocks; returns what went wrong.
  std::string call(Code& code) {
    try {
      engine->run(*plan, {send.data(), receive.data(), receive.size()},
                  base::Deadline::after(std::chrono::seconds(30)));
    } catch (const Error& error) {
      code = error.code();
      return error.what();
    }
    return "";
  }
};

/// By communicator, then by its ranks. In the second communicator the job's ranks change places.
class EngineGroups : public ::testing::Test {
 protected:
  EngineGroups() {
    for (std::size_t of = 0; of < 2; ++of) {
      for (int rank = 0; rank < 2; ++rank) {
        members_[of].push_back(std::make_unique<Member>(
            rank, segments_[of][static_cast<std::size_t>(rank)], layouts_));
      }
    }
    for (int rank = 0; rank < 2; ++rank) {
      one(rank).start_engine(&groups_[static_cast<std::size_t>(rank)], "one", 1);
      other(rank).team.job_ranks = {1, 0};
      other(rank).start_engine(&groups_[static_cast<std::size_t>(rank)], "other", 2);
    }
  }
  Member& one(int job_rank) { return *members_[0][static_cast<std::size_t>(job_rank)]; }
  Member& other(int job_rank) { return *members_[1][static_cast<std::size_t>(1 - job_rank)]; }

  std::vector<shm::SegmentLayout> layouts_{{}, {}, layout_of_two()};
  std::array<std::vector<shm::NodeSegment>, 2> segments_{shm::NodeSegment::in_memory(layouts_[2]),
                                                         shm::NodeSegment::in_memory(layouts_[2])};
  std::array<EngineGroup, 2> groups_;
  std::array<std::vector<std::unique_ptr<Member>>, 2> members_;
};

TEST_F(EngineGroups, GoOnWithCallsOfOthersInTest) {
  one(0).engine->start(one(0).run);
  other(0).engine->start(other(0).run);
  other(1).engine->start(other(1).run);
  EXPECT_EQ(other(0).run.state, CallRun::State::InFlight);
  EXPECT_FALSE(one(0).engine->test(one(0).run));
  EXPECT_EQ(other(0).run.state, CallRun::State::Ended);
  EXPECT_EQ(other(0).receive[0], std::byte{1});
}

TEST_F(EngineGroups, GoOnWithCallsOfOthersBehindACallThatNeedNotWait) {
  other(0).engine->start(other(0).run);
  other(1).engine->start(other(1).run);
  one(1).engine->start(one(1).run);
  EXPECT_EQ(other(0).run.state, CallRun::State::InFlight);
  Code code = Code::Internal;
  EXPECT_EQ(one(0).call(code), "");
  EXPECT_EQ(other(0).run.state, CallRun::State::Ended);
}

// The rank computes, and its helper sees to all of its communicators: also to one without rails.
TEST_F(EngineGroups, GoOnWithCallsWhileTheRankComputes) {
  other(0).engine->start(other(0).run);
  other(1).engine->start(other(1).run);
  EXPECT_EQ(other(0).run.state, CallRun::State::InFlight);
  groups_[0].idle_progress();
  EXPECT_EQ(other(0).run.state, CallRun::State::Ended);
}

TEST_F(EngineGroups, GoOnWithCallsOfOthersInAWait) {
  // Rank 1 comes to the call that rank 0 waits in only when the other one has ended.
  other(0).engine->start(other(0).run);
  Code code = Code::Internal;
  std::thread waits([&] { EXPECT_EQ(one(0).call(code), ""); });
  Code code_of_other = Code::Internal;
  EXPECT_EQ(other(1).call(code_of_other), "");
  EXPECT_EQ(one(1).call(code_of_other), "");
  waits.join();
  EXPECT_EQ(one(0).receive[kBytes], std::byte{2});
}

/// Into memory that both ranks have: each waits for the other twice.
std::unique_ptr<CallPlan> node_plan(const Roster& roster, MemoryKind memory) {
  PlanRequest request;
  request.algorithm = "smp-direct";
  request.memory = memory;
  request.bytes = {kBytes, kBytes};
  request.receive_offsets = {0, kBytes};
  return std::make_unique<CallPlan>(request, roster,
                                    PlanLimits{geometry().large_slot_bytes, UINT64_MAX});
}

TEST_F(EngineGroups, AreNotForgottenByCallsThatGoPastTheQueue) {
  std::vector<std::byte> shared(2 * kBytes);
  std::array<std::unique_ptr<CallPlan>, 2> plans, shared_plans;
  for (int rank = 0; rank < 2; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    // Such a rank would look at a flag for half a minute before it waits.
    one(rank).team.wait_policy = {std::numeric_limits<int>::max(), 1000};
    plans[at] = node_plan(one(rank).roster, MemoryKind::Ordinary);
    shared_plans[at] = node_plan(other(rank).roster, MemoryKind::NodeBuffer);
    ASSERT_TRUE(plans[at]->is_on_node());
  }
  CallRun in_flight;
  in_flight.plan = shared_plans[0].get();
  in_flight.buffers = {other(0).send.data(), shared.data(), shared.size()};
  in_flight.buffers.place = 5;
  other(0).engine->start(in_flight);
  std::thread rank_0([this, &plans] {
    one(0).engine->run(*plans[0], {one(0).send.data(), one(0).receive.data(), 2 * kBytes},
                       base::Deadline::after(std::chrono::seconds(60)));
  });
  std::string error;
  try {
    Buffers buffers{other(1).send.data(), shared.data(), shared.size()};
    buffers.place = 5;
    other(1).engine->run(*shared_plans[1], buffers,
                         base::Deadline::after(std::chrono::seconds(10)));
  } catch (const Error& thrown) {
    error = thrown.what();
  }
  EXPECT_EQ(error, "");
  try {
    one(1).engine->run(*plans[1], {one(1).send.data(), one(1).receive.data(), 2 * kBytes},
                       base::Deadline::after(std::chrono::seconds(60)));
  } catch (const Error&) {  // told above
  }
  rank_0.join();
}

TEST_F(EngineGroups, EndTogether) {
  other(0).engine->start(other(0).run);
  // Rank 1 of the job is rank 0 there.
  EXPECT_THROW(other(0).engine->die(Code::PeerLost, 0, "somebody died"), Error);
  EXPECT_TRUE(one(0).engine->dead());
  const shm::AbortRecord told = segments_[0][1].abort_record();
  EXPECT_EQ(told.code, static_cast<int>(Code::PeerLost));
  EXPECT_EQ(told.peer, 1);
  EXPECT_NE(told.text.find("communicator other ended"), std::string::npos) << told.text;
  EXPECT_NE(told.text.find("its rank 0 is rank 1 of the job"), std::string::npos) << told.text;
  EXPECT_NE(told.text.find("somebody died"), std::string::npos) << told.text;
  try {
    one(0).engine->throw_if_dead();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::PeerLost);
    EXPECT_EQ(error.peer(), 1);
  }
}

TEST_F(EngineGroups, SeeTheEndOfAnotherInAWait) {
  Code code = Code::Internal;
  std::string text;
  std::thread waits([&] { text = one(0).call(code); });
  segments_[1][0].set_abort(static_cast<int>(Code::Network), -1, "no rail is left");
  waits.join();
  EXPECT_EQ(code, Code::Network);
  EXPECT_NE(text.find("communicator other ended"), std::string::npos) << text;
  EXPECT_NE(text.find("no rail is left"), std::string::npos) << text;
}

TEST_F(EngineGroups, FindRanksThatWaitForEachOther) {
  Code code = Code::Internal;
  std::string text;
  std::thread waits([&] { text = one(0).call(code); });
  Code code_of_other = Code::Internal;
  const std::string text_of_other = other(1).call(code_of_other);
  waits.join();
  EXPECT_EQ(code, Code::Mismatch) << text;
  EXPECT_EQ(code_of_other, Code::Mismatch) << text_of_other;
  EXPECT_NE(text.find("in the same order"), std::string::npos) << text;
}

/// A rank that is late in both communicators waits for nobody.
TEST_F(EngineGroups, WaitForALateRank) {
  Code code = Code::Internal;
  std::thread waits([&] {
    EXPECT_EQ(one(0).call(code), "");
    EXPECT_EQ(other(0).call(code), "");
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  // In the other order than rank 0, but as a plan: it waits for nobody either.
  other(1).engine->start(other(1).run);
  Code code_of_other = Code::Internal;
  EXPECT_EQ(one(1).call(code_of_other), "");
  while (!other(1).engine->test(other(1).run)) std::this_thread::yield();
  waits.join();
  EXPECT_EQ(other(1).receive[kBytes], std::byte{2});
}

}  // namespace
}  // namespace allrail::coll
