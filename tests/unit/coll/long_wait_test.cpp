// A rank that waits for longer than most: what it has received and not acknowledged may be what
// holds up those for whom it waits.
#include <atomic>
#include <chrono>
#include <sstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "include/allrail/error.hpp"
#include "tests/unit/coll/engine_rank.hpp"

namespace allrail::coll {
namespace {

using namespace std::chrono_literals;

/// Two nodes of one rank, with links and the plan of a call that only rank 0 makes.
class LongWait : public ::testing::Test {
 protected:
  void make_plans() {
    PlanRequest request;
    request.algorithm = "smp-direct";
    request.bytes = {8, 8};
    request.receive_offsets = {0, 8};
    for (const auto& rank : ranks_) {
      rank->engine = std::make_unique<Engine>(rank->team, testing::geometry(), 1);
      plans_.push_back(std::make_unique<CallPlan>(
          request, rank->roster, PlanLimits{testing::geometry().large_slot_bytes, UINT64_MAX}));
      rank->engine->connect(*plans_.back());
    }
    for (int i = 0; i < 100; ++i) {
      for (const auto& rank : ranks_) rank->fabric->progress();
      network_.advance(10'000);
    }
  }
  /// The other rank does not come, so only the deadline ends this wait.
  void wait_in_vain(std::chrono::milliseconds limit) {
    std::vector<std::byte> memory(16);
    EXPECT_THROW(ranks_[0]->engine->run(*plans_[0], {memory.data(), memory.data(), 16, 16},
                                        base::Deadline::after(limit)),
                 Error);
  }
  /// What such a wait says, line by line, where a rank warns after so long.
  std::vector<std::string> said(std::chrono::milliseconds warn_after,
                                std::chrono::milliseconds limit) {
    ranks_[0]->team.warn_after_ns = std::chrono::nanoseconds(warn_after).count();
    make_plans();
    ::testing::internal::CaptureStderr();
    wait_in_vain(limit);
    std::istringstream text(::testing::internal::GetCapturedStderr());
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  }

  transport::FakeNetwork network_{1, 2, std::vector<transport::FakeRailOptions>(1)};
  std::vector<std::unique_ptr<testing::EngineRank>> ranks_ =
      testing::make_engine_ranks(network_, 2, 1);
  std::vector<std::unique_ptr<CallPlan>> plans_;
};

TEST_F(LongWait, AcknowledgesLongBeforeItSleeps) {
  make_plans();
  testing::RailUse& use = ranks_[0]->registrations;
  use = {};
  wait_in_vain(std::chrono::milliseconds(500));
  if (use.polls <= 60) GTEST_SKIP() << "others had the cores: it looked " << use.polls << " times";
  EXPECT_GE(use.polls_until_flush, 0);
  EXPECT_LE(use.polls_until_flush, 40);
}

// Whatever else moves over the rails meanwhile, such as another call of many bytes.
TEST_F(LongWait, EndsInTimeWhileBytesKeepComing) {
  make_plans();
  std::atomic<bool> moves = true;
  ranks_[0]->registrations.finds_something = &moves;
  std::atomic<bool> ended = false;
  std::thread gives_up([&] {
    for (int i = 0; i < 1000 && !ended; ++i) std::this_thread::sleep_for(10ms);
    if (!ended) moves = false;
  });
  wait_in_vain(100ms);
  ended = true;
  gives_up.join();
  EXPECT_TRUE(moves) << "it ended only when nothing moved any more";
}

TEST_F(LongWait, WarnsOnceForWhomItWaits) {
  // The second warning would come ten times as late, when the call has ended.
  const auto lines = said(std::chrono::milliseconds(100), std::chrono::milliseconds(1000));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("warning"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("in allgather for rank 1; nothing says that it died"), std::string::npos)
      << lines[0];
}

TEST_F(LongWait, WarnsAgainAfterTenTimesAsLong) {
  // After 10 ms, 110 ms, 210 ms and so on; some are later on a busy machine, none is sooner.
  const auto lines = said(std::chrono::milliseconds(10), std::chrono::milliseconds(2000));
  EXPECT_GE(lines.size(), 2U);
  EXPECT_LE(lines.size(), 20U);
  for (const std::string& line : lines) {
    EXPECT_NE(line.find("for rank 1;"), std::string::npos) << line;
  }
}

TEST_F(LongWait, SaysNothingBefore) {
  EXPECT_EQ(Team{}.warn_after_ns, 30'000'000'000) << "as docs/settings.md says";
  EXPECT_TRUE(said(std::chrono::seconds(30), std::chrono::milliseconds(100)).empty());
}

}  // namespace
}  // namespace allrail::coll
