// Who is faster at which size where a message costs its rail a start-up, as on a port of the
// papers' model (Hockney's ts + m * tau, and one message in at a time): real engines and fabrics,
// over fake rails with a virtual clock, so no machine decides. Qian and Afsahi 2008, section 5 and
// figure 5: trees, Bruck's algorithm and recursive doubling win with small blocks, and lose their
// lead where bytes count, or lose where they carry blocks several times.
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/coll/engine_rank.hpp"

namespace allrail::coll {
namespace {

using testing::EngineRank;

constexpr int kRanks = 16;  // each on a node of its own
constexpr std::int64_t kStartupNs = 20'000;
constexpr std::int64_t kDelayNs = 5'000;
constexpr double kBytesPerSecond = 1e8;
constexpr double kStepNs = kStartupNs + kDelayNs;  // of one message, without its bytes
constexpr int kLookEveryNs = 500;
constexpr int kAttempts = 1000;

transport::FakeRailOptions port() {
  transport::FakeRailOptions rail;
  rail.startup_ns = kStartupNs;
  rail.delay_ns = kDelayNs;
  rail.bytes_per_second = kBytesPerSecond;
  return rail;
}

/// A job that makes one kind of call.
class Job {
 public:
  Job(Operation operation, const std::string& algorithm, std::uint64_t bytes)
      : network_(1, kRanks, {port()}), ranks_(testing::make_engine_ranks(network_, kRanks, 1)) {
    PlanRequest request;
    request.operation = operation;
    request.root = operation == Operation::Allgather || operation == Operation::Alltoall ? -1 : 0;
    request.algorithm = algorithm;
    request.bytes.assign(kRanks, bytes);
    for (std::uint64_t rank = 0; rank < kRanks; ++rank)
      request.receive_offsets.push_back(rank * bytes);
    if (operation == Operation::Alltoall) request.send_offsets = request.receive_offsets;
    for (auto& rank : ranks_) {
      // By the real clock ranks that wait for long tell each other words, of which no formula
      // knows.
      rank->team.slow_check_ns = std::numeric_limits<std::int64_t>::max() / 2;
      rank->engine = std::make_unique<Engine>(rank->team, testing::geometry(), 1, UINT64_MAX);
      Call& mine = calls_.emplace_back();
      mine.send.resize(kRanks * bytes);
      mine.receive.resize(kRanks * bytes);
      mine.plan = std::make_unique<CallPlan>(
          request, rank->roster, PlanLimits{testing::geometry().large_slot_bytes, UINT64_MAX});
      mine.run.plan = mine.plan.get();
      mine.run.buffers = {mine.send.data(), mine.receive.data(), mine.receive.size(),
                          mine.send.size()};
      rank->engine->connect(*mine.plan);
    }
    for (int i = 0; i < kAttempts; ++i) {  // of links to come up
      for (auto& rank : ranks_) rank->fabric->progress();
      network_.advance(100'000);
    }
  }

  /// Virtual time from its start on all ranks to its end on the last of them, -1: it does not end.
  std::int64_t call_ns() {
    const std::int64_t started_ns = network_.now_ns();
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank]->engine->start(calls_[rank].run);
      calls_[rank].ended = false;
    }
    while (network_.now_ns() < started_ns + 10'000'000'000) {
      bool all = true;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        Call& mine = calls_[rank];
        if (!mine.ended) mine.ended = ranks_[rank]->engine->test(mine.run);
        if (mine.ended) ranks_[rank]->engine->idle_progress();
        all = all && mine.ended;
      }
      if (all) return network_.now_ns() - started_ns;
      network_.advance(kLookEveryNs);
    }
    return -1;
  }

 private:
  struct Call {
    std::vector<std::byte> send, receive;
    std::unique_ptr<CallPlan> plan;
    CallRun run;
    bool ended = false;
  };
  transport::FakeNetwork network_;
  std::vector<std::unique_ptr<EngineRank>> ranks_;
  std::deque<Call> calls_;  // by rank; engines keep pointers to them
};

double time_of(Operation operation, const std::string& algorithm, std::uint64_t bytes) {
  Job job(operation, algorithm, bytes);
  (void)job.call_ns();
  const std::int64_t time_ns = job.call_ns();
  EXPECT_GT(time_ns, 0) << algorithm << " does not end";
  return static_cast<double>(time_ns);
}

struct Form {
  Operation operation;
  const char* algorithm;
  double steps;  // by the papers' formula, with one port
};

// That of a whole call: neither engine nor fabric adds anything that the formulas do not know.
TEST(Ports, SmallCallsTakeTheStepsOfTheFormulas) {
  constexpr double kOneAfterTheOther = 15;
  constexpr double kLog = 4;
  // A root that awaits or sends them back to back does not wait for each to travel.
  constexpr double kBackToBack = (15 * kStartupNs + kDelayNs) / kStepNs;
  for (const Form& form :
       {Form{Operation::Allgather, "direct", kOneAfterTheOther},
        Form{Operation::Allgather, "ring", kOneAfterTheOther},
        Form{Operation::Allgather, "bruck", kLog},
        Form{Operation::Allgather, "recursive-doubling", kLog},
        Form{Operation::Alltoall, "direct", kOneAfterTheOther},
        Form{Operation::Alltoall, "bruck", kLog},
        Form{Operation::Alltoall, "recursive-doubling", kLog},
        Form{Operation::Gather, "direct", kBackToBack}, Form{Operation::Gather, "binomial", kLog},
        Form{Operation::Scatter, "direct", kBackToBack}, Form{Operation::Scatter, "binomial", kLog},
        Form{Operation::Broadcast, "chain", kOneAfterTheOther},
        Form{Operation::Broadcast, "binomial", kLog}}) {
    const double steps = time_of(form.operation, form.algorithm, 1) / kStepNs;
    // Blocks travel with headers of 64 bytes, up to eight at a time in all.
    const double with_headers = form.steps + 15 * 2 * 64 / kBytesPerSecond * 1e9 / kStepNs;
    EXPECT_GE(steps, form.steps * 0.99)
        << form.algorithm << " " << static_cast<int>(form.operation);
    EXPECT_LE(steps, with_headers * 1.05)
        << form.algorithm << " " << static_cast<int>(form.operation);
  }
}

struct Crossing {
  Operation operation;
  const char* for_small;
  const char* for_large;
  std::uint64_t large_bytes;
};

void expect_few_messages_win_with_small_blocks(const Crossing& one) {
  EXPECT_LT(2 * time_of(one.operation, one.for_small, 8), time_of(one.operation, one.for_large, 8))
      << one.for_small;
}

// Alltoalls by Bruck's algorithm and Standard Exchange carry every block log n / 2 times, and a
// binomial broadcast leaves most ports idle.
TEST(Ports, FewMessagesWinWithSmallBlocksAndFewBytesWithLargeOnes) {
  for (const Crossing& one : {Crossing{Operation::Alltoall, "bruck", "direct", 4096},
                              Crossing{Operation::Alltoall, "recursive-doubling", "direct", 4096},
                              Crossing{Operation::Broadcast, "binomial", "chain", 61440}}) {
    expect_few_messages_win_with_small_blocks(one);
    EXPECT_GT(time_of(one.operation, one.for_small, one.large_bytes),
              1.2 * time_of(one.operation, one.for_large, one.large_bytes))
        << one.for_large;
  }
}

// These carry every block as often as those with many messages do.
TEST(Ports, TheLeadOfFewMessagesIsLostWhereBytesCount) {
  for (const Crossing& one : {Crossing{Operation::Allgather, "bruck", "direct", 4000},
                              Crossing{Operation::Allgather, "recursive-doubling", "ring", 4000},
                              Crossing{Operation::Gather, "binomial", "direct", 4000},
                              Crossing{Operation::Scatter, "binomial", "direct", 4000}}) {
    expect_few_messages_win_with_small_blocks(one);
    EXPECT_LT(time_of(one.operation, one.for_large, one.large_bytes),
              1.5 * time_of(one.operation, one.for_small, one.large_bytes))
        << one.for_large;
  }
}

}  // namespace
}  // namespace allrail::coll
