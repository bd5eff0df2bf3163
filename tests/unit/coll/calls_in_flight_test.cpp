// Engines of several ranks in one process, over fake rails, driven by test() alone: calls that were
// started and do not block, and what they register.
#include <array>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "coll/engine.hpp"
#include "shm/progress.hpp"
#include "tests/unit/coll/engine_rank.hpp"

namespace allrail::coll {
namespace {

using testing::EngineRank;
using testing::geometry;

constexpr int kRanks = 3;
constexpr std::uint64_t kBytes = 5000;
constexpr std::uint64_t kRegisteredBytes = (kRanks + 1) * kBytes;

/// The bytes that a rank sends in a start.
std::byte content(int rank, int start) { return static_cast<std::byte>(rank + 1 + 10 * start); }

/// One call of one rank, with its memory.
struct Started {
  std::unique_ptr<CallPlan> plan;
  std::vector<std::byte> send = std::vector<std::byte>(kBytes);
  std::vector<std::byte> receive = std::vector<std::byte>(kRanks * kBytes);
  CallRun run;
};
using OfAllRanks = std::array<Started, kRanks>;

class CallsInFlight : public ::testing::Test {
 protected:
  explicit CallsInFlight(const transport::FakeRailOptions& rail = {})
      : network_{1, kRanks, {rail}} {}

  void start_engines(std::uint64_t registered_bytes = UINT64_MAX) {
    for (int rank = 0; rank < kRanks; ++rank) {
      at(rank).engine = std::make_unique<Engine>(at(rank).team, geometry(), 1, registered_bytes);
    }
  }
  static constexpr std::uint64_t kCopied = UINT64_MAX;

  /// An allgather on all ranks: zero-copy, unless its blocks are below `zero_copy_threshold`. In
  /// slices where a slot has less room.
  std::unique_ptr<OfAllRanks> make_plan(std::uint64_t zero_copy_threshold,
                                        const std::string& algorithm = "direct",
                                        std::uint64_t slot_bytes = geometry().large_slot_bytes) {
    auto all = std::make_unique<OfAllRanks>();
    for (int rank = 0; rank < kRanks; ++rank) {
      PlanRequest request;
      request.algorithm = algorithm;
      request.ports = ports_;
      for (int other = 0; other < kRanks; ++other) {
        request.bytes.push_back(kBytes);
        request.receive_offsets.push_back(static_cast<std::uint64_t>(other) * kBytes);
      }
      Started& one = (*all)[static_cast<std::size_t>(rank)];
      one.plan = std::make_unique<CallPlan>(request, at(rank).roster,
                                            PlanLimits{slot_bytes, zero_copy_threshold});
      one.run.plan = one.plan.get();
      one.run.buffers = {one.send.data(), one.receive.data(), one.receive.size(), one.send.size()};
      one.run.keeps_registration = true;
      at(rank).engine->connect(*one.plan);
    }
    return all;
  }

  /// From rank 0 to rank 1.
  std::uint64_t put_small(std::uint64_t call) {
    transport::Put put;
    put.peer = 1;
    put.from = at(0).segment.bytes().data();
    put.bytes = 8;
    put.call = call;
    return at(0).fabric->put(put);
  }

  void start(OfAllRanks& all, int rank, int start) {
    Started& one = all[static_cast<std::size_t>(rank)];
    std::ranges::fill(one.send, content(rank, start));
    std::ranges::fill(one.receive, std::byte{0xEE});
    at(rank).engine->start(one.run);
  }
  void start_on_all(OfAllRanks& all, int number) {
    for (int rank = 0; rank < kRanks; ++rank) start(all, rank, number);
  }

  bool test(OfAllRanks& all, int rank) {
    return at(rank).engine->test(all[static_cast<std::size_t>(rank)].run);
  }
  /// Tests on all ranks until all of them have ended, or for ten seconds of the network's time.
  void end_on_all(OfAllRanks& all, int number) {
    const std::int64_t end_ns = network_.now_ns() + 10'000'000'000;
    bool over = false;
    while (!over && network_.now_ns() < end_ns) {
      over = true;
      for (int rank = 0; rank < kRanks; ++rank) over = test(all, rank) && over;
      network_.advance(100'000);
    }
    ASSERT_TRUE(over) << "start " << number << " did not end";
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int other = 0; other < kRanks; ++other) {
        const auto& receive = all[static_cast<std::size_t>(rank)].receive;
        const auto begin = static_cast<std::size_t>(other) * kBytes;
        EXPECT_EQ(receive[begin], content(other, number));
        EXPECT_EQ(receive[begin + kBytes - 1], content(other, number));
      }
    }
  }
  void let_time_pass() {
    for (int i = 0; i < 1000; ++i) {
      for (auto& rank : ranks_) rank->fabric->progress();
      network_.advance(100'000);
    }
  }
  void abandon_on_all(OfAllRanks& all) {
    for (int rank = 0; rank < kRanks; ++rank) {
      at(rank).engine->abandon(all[static_cast<std::size_t>(rank)].run,
                               std::chrono::milliseconds(0));
    }
  }

  std::uint64_t begun_on(int rank) { return shm::read_call(at(rank).segment.line(0)).sequence; }
  EngineRank& at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

  transport::FakeNetwork network_;
  int ports_ = 1;  // of plans made from here on

 private:
  std::vector<std::unique_ptr<EngineRank>> ranks_ = testing::make_engine_ranks(network_, kRanks, 1);
};

TEST_F(CallsInFlight, RegisterOnceForAllStartsOfAPlan) {
  start_engines();
  const auto plan = make_plan(kBytes);
  ASSERT_TRUE((*plan)[0].plan->zero_copy());
  for (int number = 0; number < 5; ++number) {
    start_on_all(*plan, number);
    end_on_all(*plan, number);
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(at(rank).registrations.windows, 1);
    EXPECT_EQ(at(rank).registrations.sources, 1);
    EXPECT_EQ(at(rank).registrations.held, 2);
  }
  abandon_on_all(*plan);
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(at(rank).registrations.held, 0);
}

/// Rails that acknowledge when they are told to, or when something goes back, and whose clocks for
/// that stand still.
class CallsThatAreAcknowledgedLate : public CallsInFlight {
 protected:
  CallsThatAreAcknowledgedLate() : CallsInFlight({.holds_acknowledgements = true}) {
    for (int rank = 0; rank < kRanks; ++rank) {
      at(rank).team.slow_check_ns = std::numeric_limits<std::int64_t>::max() / 2;
    }
    start_engines();
  }
};

// All wait for each other's word that their memory is free.
TEST_F(CallsThatAreAcknowledgedLate, EndWhenEverythingHasArrived) {
  for (const char* algorithm : {"direct", "ring", "recursive-doubling"}) {
    const auto plan = make_plan(kBytes, algorithm);
    ASSERT_TRUE((*plan)[0].plan->zero_copy());
    for (int number = 0; number < 5; ++number) {
      start_on_all(*plan, number);
      ASSERT_NO_FATAL_FAILURE(end_on_all(*plan, number)) << algorithm;
    }
    abandon_on_all(*plan);
  }
}

TEST_F(CallsInFlight, RegisterForEachCallWhatNoPlanKeeps) {
  start_engines();
  const auto plan = make_plan(kBytes);
  for (auto& one : *plan) one.run.keeps_registration = false;
  for (int number = 0; number < 3; ++number) {
    start_on_all(*plan, number);
    EXPECT_EQ(at(0).registrations.held, 2);
    end_on_all(*plan, number);
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(at(rank).registrations.held, 0);
  }
  EXPECT_EQ(at(0).registrations.windows, 3);
}

TEST_F(CallsInFlight, RegisterNothingThatIsCopied) {
  start_engines();
  const auto plan = make_plan(kCopied);
  start_on_all(*plan, 1);
  end_on_all(*plan, 1);
  EXPECT_EQ(at(0).registrations.windows + at(0).registrations.sources, 0);
}

TEST_F(CallsInFlight, GiveMemoryBackWhereTheLimitIsNear) {
  start_engines(kRegisteredBytes + kBytes);
  const auto one = make_plan(kBytes);
  const auto other = make_plan(kBytes);
  for (int number = 0; number < 3; ++number) {
    start_on_all(*one, number);
    end_on_all(*one, number);
    start_on_all(*other, number);
    end_on_all(*other, number);
  }
  EXPECT_EQ(at(0).registrations.windows, 6);
  EXPECT_EQ(at(0).registrations.most_bytes, kRegisteredBytes);
}

TEST_F(CallsInFlight, WaitForMemoryThatAnEarlierCallHolds) {
  start_engines(kRegisteredBytes + kBytes);
  const auto one = make_plan(kBytes);
  const auto other = make_plan(kBytes);
  start_on_all(*one, 1);
  start_on_all(*other, 2);
  EXPECT_EQ(begun_on(0), 1U);
  end_on_all(*other, 2);
  end_on_all(*one, 1);
  EXPECT_EQ(at(0).registrations.most_bytes, kRegisteredBytes);
}

TEST_F(CallsInFlight, RunTogetherAndEndInTheOrderOfTheirStarts) {
  start_engines();
  std::vector<std::unique_ptr<OfAllRanks>> plans;
  for (int i = 0; i < 5; ++i) plans.push_back(make_plan(i % 2 == 0 ? kCopied : kBytes));
  for (int i = 0; i < 5; ++i) start(*plans[static_cast<std::size_t>(i)], 0, i);
  EXPECT_EQ(begun_on(0), 3U) << "as many as there are executions";
  for (int i = 0; i < 5; ++i) {
    for (int rank = 1; rank < kRanks; ++rank) start(*plans[static_cast<std::size_t>(i)], rank, i);
  }
  end_on_all(*plans[4], 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ((*plans[static_cast<std::size_t>(i)])[0].run.state, CallRun::State::Ended);
    end_on_all(*plans[static_cast<std::size_t>(i)], i);
  }
}

TEST_F(CallsInFlight, CopyTheNextSlicesInWhileTheFirstIsOnTheRails) {
  start_engines();
  ports_ = kRanks - 1;  // all puts in one round, which await nothing
  const auto plan = make_plan(kCopied, "direct", 4096);
  const CallPlan& mine = *(*plan)[0].plan;
  ASSERT_GT(mine.slices(), 3U);
  start(*plan, 0, 1);
  EXPECT_EQ(begun_on(0), 3U) << "as many as there are executions";
  let_time_pass();
  const std::uint64_t sent = at(0).fabric->counters().front().bytes_sent;
  EXPECT_GE(sent, (kRanks - 1) * mine.slice_begin(3)) << "nobody has answered the first one";
  EXPECT_LT(sent, (kRanks - 1) * 4 * mine.slice_begin(1));
  start(*plan, 1, 1);
  start(*plan, 2, 1);
  end_on_all(*plan, 1);
}

TEST_F(CallsInFlight, DoNotEndBeforeEveryRankHasStarted) {
  start_engines();
  const auto plan = make_plan(kCopied);
  start(*plan, 0, 1);
  start(*plan, 1, 1);
  let_time_pass();
  EXPECT_FALSE(test(*plan, 0));
  EXPECT_FALSE(test(*plan, 1));
  start(*plan, 2, 1);
  end_on_all(*plan, 1);
}

TEST_F(CallsInFlight, MakeProgressWhileTheUserIsElsewhere) {
  start_engines();
  // Rank 1 passes on the block of rank 0.
  const auto plan = make_plan(kCopied, "ring");
  start_on_all(*plan, 1);
  for (int i = 0; i < 200; ++i) {
    at(1).engine->idle_progress();
    test(*plan, 0);
    test(*plan, 2);
    let_time_pass();
    if ((*plan)[2].run.state == CallRun::State::Ended) break;
  }
  EXPECT_EQ((*plan)[0].run.state, CallRun::State::Ended);
  EXPECT_EQ((*plan)[1].run.state, CallRun::State::Ended);
  end_on_all(*plan, 1);
}

TEST_F(CallsInFlight, KeepTheErrorThatWasFoundWhileTheUserWasElsewhere) {
  start_engines();
  const auto plan = make_plan(kBytes);
  start(*plan, 0, 1);
  at(0).segment.set_abort(static_cast<int>(Code::PeerLost), 2, "rank 2 died");
  at(0).engine->idle_progress();
  EXPECT_EQ((*plan)[0].run.state, CallRun::State::Failed);
  EXPECT_EQ(at(0).registrations.held, 0) << "links are closed, so nobody writes any more";
  for (const Code code : {Code::PeerLost, Code::Aborted}) {
    try {
      test(*plan, 0);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
    }
  }
}

TEST_F(CallsInFlight, TellAllRanksOfARegistrationThatFails) {
  start_engines();
  const auto plan = make_plan(kBytes);
  at(0).registrations.refuse = true;
  EXPECT_THROW(start(*plan, 0, 1), Error);
  EXPECT_TRUE(at(0).segment.aborted());
  EXPECT_EQ(static_cast<Code>(at(0).segment.abort_record().code), Code::ResourceLimit);
  EXPECT_EQ(at(0).registrations.held, 0);
}

TEST_F(CallsInFlight, EndTheCommunicatorWhenTheyAreAbandonedAndCannotEnd) {
  start_engines();
  const auto plan = make_plan(kBytes);
  start(*plan, 0, 1);
  EXPECT_EQ(at(0).registrations.held, 2);
  at(0).engine->abandon((*plan)[0].run, std::chrono::milliseconds(20));
  EXPECT_EQ(at(0).registrations.held, 0);
  EXPECT_EQ(static_cast<Code>(at(0).segment.abort_record().code), Code::Aborted);
  EXPECT_THROW(at(0).engine->throw_if_dead(), Error);
}

TEST_F(CallsInFlight, RunOutOfTimeInTest) {
  start_engines();
  const auto plan = make_plan(kCopied);
  (*plan)[0].run.deadline = base::Deadline::after(std::chrono::milliseconds(1));
  start(*plan, 0, 1);
  const auto patience = base::Deadline::after(std::chrono::seconds(20));
  try {
    while (!test(*plan, 0) && !patience.passed()) {
    }
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Timeout);
  }
}

TEST_F(CallsInFlight, SayWhichOperationHasLostItsPeer) {
  start_engines();
  const auto plan = make_plan(kCopied);
  start_on_all(*plan, 1);
  end_on_all(*plan, 1);
  for (const int peer : {1, 2}) network_.cut(0, 0, peer, {});
  start(*plan, 0, 2);
  const std::int64_t end_ns = network_.now_ns() + 20'000'000'000;
  try {
    while (!test(*plan, 0) && network_.now_ns() < end_ns) network_.advance(10'000'000);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Network);
    const std::string text = error.what();
    const std::string peer = "rank " + std::to_string(error.peer());
    EXPECT_TRUE(
        text.starts_with("rank 0: allgather of 5000 bytes per rank by direct cannot go on: "
                         "rank 0 on host  has had no rail to " +
                         peer))
        << text;
  }
}

/// A later call has more to send than its peer takes: the earlier one has left this process.
TEST_F(CallsInFlight, LeaveTheProcessOneByOne) {
  start_engines();
  const auto plan = make_plan(kCopied);
  let_time_pass();
  put_small(1);
  for (int i = 0; i < transport::kMaxOpenPuts; ++i) put_small(2);
  let_time_pass();
  EXPECT_TRUE(at(0).fabric->flushed(1));
  EXPECT_FALSE(at(0).fabric->flushed(2));
  EXPECT_FALSE(at(0).fabric->flushed());
}

/// What is left of the later one lies in the rail.
TEST_F(CallsInFlight, LeaveTheProcessThoughTheRailIsFullOfLaterOnes) {
  start_engines();
  const auto plan = make_plan(kCopied);
  let_time_pass();
  const std::uint64_t number = put_small(1);
  let_time_pass();
  ASSERT_TRUE(at(0).fabric->completed(1, number));
  at(0).registrations.is_stuck = true;
  put_small(2);
  EXPECT_TRUE(at(0).fabric->flushed(1));
  EXPECT_FALSE(at(0).fabric->flushed(2));
  at(0).registrations.is_stuck = false;
}

}  // namespace
}  // namespace allrail::coll
