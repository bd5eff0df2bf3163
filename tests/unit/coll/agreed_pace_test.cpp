// After every barrier all ranks of a job know the same of its rails, also those that do not talk
// for their node: schedules are chosen by it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "coll/barrier/barrier.hpp"
#include "tests/unit/coll/engine_rank.hpp"

namespace allrail::coll {
namespace {

using testing::EngineRank;
using transport::Pace;

constexpr int kNodes = 4;
constexpr int kNodeSize = 2;
constexpr std::uint64_t kBytes = 16 * 1024;

class AgreedPace : public ::testing::Test {
 protected:
  AgreedPace()
      : network_(1, kNodes * kNodeSize, std::vector<transport::FakeRailOptions>(1)),
        ranks_(testing::make_engine_ranks(network_, kNodes, kNodeSize)) {
    for (auto& rank : ranks_) {
      rank->engine = std::make_unique<Engine>(rank->team, testing::geometry(), 1);
      Calls& calls = calls_.emplace_back();
      const PlanLimits limits{testing::geometry().large_slot_bytes, UINT64_MAX};
      calls.barrier = std::make_unique<CallPlan>(barrier_request(), rank->roster, limits);
      calls.broadcast = std::make_unique<CallPlan>(broadcast_request(), rank->roster, limits);
      calls.memory.resize(kBytes);
      rank->engine->connect(*calls.barrier);
      rank->engine->connect(*calls.broadcast);
    }
  }

  static PlanRequest barrier_request() {
    PlanRequest request;
    request.operation = Operation::Barrier;
    request.algorithm = barrier::kAlgorithm;
    request.bytes.assign(kNodes * kNodeSize, 0);
    request.receive_offsets.assign(kNodes * kNodeSize, 0);
    return request;
  }
  static PlanRequest broadcast_request() {
    PlanRequest request;
    request.operation = Operation::Broadcast;
    request.algorithm = "smp-chain";  // all nodes but the last one send
    request.root = 0;
    request.bytes.assign(kNodes * kNodeSize, kBytes);
    request.receive_offsets.assign(kNodes * kNodeSize, 0);
    return request;
  }

  /// Makes one call on all ranks; each is looked at as soon as its own has ended.
  void call(bool is_barrier, const std::function<void(EngineRank&)>& look) {
    std::vector<CallRun> runs(ranks_.size());
    std::vector<bool> ended(ranks_.size());
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      Calls& calls = calls_[rank];
      runs[rank].plan = is_barrier ? calls.barrier.get() : calls.broadcast.get();
      if (!is_barrier) {
        runs[rank].buffers = {calls.memory.data(), calls.memory.data(), kBytes, kBytes};
      }
      ranks_[rank]->engine->start(runs[rank]);
    }
    const std::int64_t end_ns = network_.now_ns() + 10'000'000'000;
    for (std::size_t left = ranks_.size(); left > 0;) {
      ASSERT_LT(network_.now_ns(), end_ns) << "the call does not end";
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        if (ended[rank] || !ranks_[rank]->engine->test(runs[rank])) continue;
        ended[rank] = true;
        --left;
        look(*ranks_[rank]);
      }
      for (auto& rank : ranks_) rank->engine->idle_progress();
      network_.advance(10'000);
    }
  }

  /// So many broadcasts and a barrier behind them. Returns what all ranks know then.
  Pace round(int broadcasts) {
    for (int i = 0; i < broadcasts; ++i) call(false, [](EngineRank&) {});
    std::vector<Pace> known;
    call(true, [&](EngineRank& rank) { known.push_back(rank.engine->agreed_pace()); });
    EXPECT_EQ(known, std::vector<Pace>(ranks_.size(), known.at(0)));
    return known[0];
  }

  struct Calls {
    std::unique_ptr<CallPlan> barrier, broadcast;
    std::vector<std::byte> memory;
  };
  transport::FakeNetwork network_;
  std::vector<std::unique_ptr<EngineRank>> ranks_;
  std::vector<Calls> calls_;
};

TEST_F(AgreedPace, IsKnownToAllOnceThereWasEnoughToSee) {
  EXPECT_EQ(round(0), Pace::Unknown);
  EXPECT_EQ(round(10), Pace::Unknown);
  round(100);
  // The signals of a barrier are passed on in the next one, and their node hears of it in the one
  // after that.
  round(0);
  EXPECT_EQ(round(0), Pace::Fast);
}

TEST_F(AgreedPace, IsNotMissedByRanksThatOnlyRaiseAFlag) {
  for (const Calls& calls : calls_) EXPECT_FALSE(calls.barrier->is_on_node());
}

TEST_F(AgreedPace, IsOfTheSameBarrierForRanksThatComeAndGoAsTheyLike) {
  // Each rank goes on by itself, a few calls behind or ahead of others, while a rail is slow at
  // times: every barrier must leave the same with all of them.
  constexpr std::size_t kBarriers = 1000;
  std::mt19937_64 chance(1);
  std::vector<CallRun> runs(ranks_.size());
  std::vector<std::vector<Pace>> known(ranks_.size());
  std::vector<std::size_t> calls(ranks_.size());
  std::size_t stopped = 0;
  const std::int64_t end_ns = network_.now_ns() + 10'000'000'000;
  for (std::size_t over = 0; over < ranks_.size();) {
    ASSERT_LT(network_.now_ns(), end_ns) << "the calls do not end";
    if (chance() % 50 == 0) stopped = chance() % ranks_.size();
    const std::size_t rank = chance() % ranks_.size();
    if (rank == stopped) continue;
    ranks_[kNodeSize]->registrations.holds_back = calls[0] % 1000 >= 700;
    network_.advance(2'000);
    if (known[rank].size() == kBarriers) {
      ranks_[rank]->engine->idle_progress();
      continue;
    }
    CallRun& run = runs[rank];
    const bool is_barrier = calls[rank] % 2 == 1;
    if (run.state != CallRun::State::InFlight) {
      run.plan = is_barrier ? calls_[rank].barrier.get() : calls_[rank].broadcast.get();
      run.buffers = {};
      if (!is_barrier) {
        run.buffers = {calls_[rank].memory.data(), calls_[rank].memory.data(), kBytes, kBytes};
      }
      ranks_[rank]->engine->start(run);
    }
    if (!ranks_[rank]->engine->test(run)) continue;
    ++calls[rank];
    if (is_barrier) known[rank].push_back(ranks_[rank]->engine->agreed_pace());
    if (known[rank].size() == kBarriers) ++over;
  }
  for (std::size_t rank = 1; rank < known.size(); ++rank) EXPECT_EQ(known[rank], known[0]);
  EXPECT_TRUE(std::ranges::count(known[0], Pace::Slow) > 0 &&
              std::ranges::count(known[0], Pace::Fast) > 0);
}

TEST_F(AgreedPace, IsSlowWhereARailOfOneNodeIs) {
  // What the second node sends stays in front of a slow wire for long.
  ranks_[kNodeSize]->registrations.holds_back = true;
  round(100);
  round(0);
  EXPECT_EQ(round(0), Pace::Slow);
  ranks_[kNodeSize]->registrations.holds_back = false;
  round(100);
  round(0);
  EXPECT_EQ(round(0), Pace::Slow) << "no more is sent than when it was slow";
}

}  // namespace
}  // namespace allrail::coll
