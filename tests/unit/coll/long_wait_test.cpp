// A rank that waits for longer than most: what it has received and not acknowledged may be what
// holds up those for whom it waits.
#include <chrono>

#include <gtest/gtest.h>

#include "include/allrail/error.hpp"
#include "tests/unit/coll/engine_rank.hpp"

namespace allrail::coll {
namespace {

TEST(LongWait, AcknowledgesLongBeforeItSleeps) {
  transport::FakeNetwork network(1, 2, std::vector<transport::FakeRailOptions>(1));
  const auto ranks = testing::make_engine_ranks(network, 2, 1);
  PlanRequest request;
  request.algorithm = "smp-direct";
  request.bytes = {8, 8};
  request.receive_offsets = {0, 8};
  std::vector<std::unique_ptr<CallPlan>> plans;
  for (const auto& rank : ranks) {
    rank->engine = std::make_unique<Engine>(rank->team, testing::geometry(), 1);
    plans.push_back(std::make_unique<CallPlan>(
        request, rank->roster, PlanLimits{testing::geometry().large_slot_bytes, UINT64_MAX}));
    rank->engine->connect(*plans.back());
  }
  for (int i = 0; i < 100; ++i) {
    for (const auto& rank : ranks) rank->fabric->progress();
    network.advance(10'000);
  }

  // The other rank does not come, so only the deadline ends this wait.
  testing::RailUse& use = ranks[0]->registrations;
  use = {};
  std::vector<std::byte> memory(16);
  EXPECT_THROW(ranks[0]->engine->run(*plans[0], {memory.data(), memory.data(), 16, 16},
                                     base::Deadline::after(std::chrono::milliseconds(200))),
               Error);
  EXPECT_GT(use.polls, 60) << "or it was no long wait";
  EXPECT_GE(use.polls_until_flush, 0);
  EXPECT_LE(use.polls_until_flush, 40);
}

}  // namespace
}  // namespace allrail::coll
