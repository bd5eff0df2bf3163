// Calls on one node that are walked straight through, with threads as ranks: whole, and stopped at
// every flag, where the engine goes on.
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "coll/barrier/barrier.hpp"
#include "coll/engine.hpp"
#include "include/allrail/error.hpp"
#include "lib/base/error.hpp"
#include "tests/unit/coll/engine_rank.hpp"

namespace allrail::coll {
namespace {

using testing::geometry;
using testing::layout_of;

Roster roster_of(int ranks, int rank) {
  return {schedule::NodeMap(std::vector<int>(static_cast<std::size_t>(ranks), 0)), rank};
}

std::unique_ptr<CallPlan> plan_of(const Roster& roster, Operation operation, std::uint64_t bytes,
                                  MemoryKind memory = MemoryKind::Ordinary,
                                  std::uint64_t once_bytes = 0) {
  PlanRequest request;
  request.operation = operation;
  request.memory = memory;
  request.algorithm = "smp-direct";
  if (operation == Operation::Gather) request.root = 0;
  for (int rank = 0; rank < roster.ranks(); ++rank) {
    request.bytes.push_back(bytes);
    request.receive_offsets.push_back(static_cast<std::uint64_t>(rank) * bytes);
  }
  PlanLimits limits{geometry().large_slot_bytes, UINT64_MAX};
  limits.once_bytes = once_bytes;
  return std::make_unique<CallPlan>(request, roster, limits);
}

std::unique_ptr<CallPlan> allgather_plan(const Roster& roster, std::uint64_t bytes) {
  return plan_of(roster, Operation::Allgather, bytes);
}

std::unique_ptr<CallPlan> barrier_plan(const Roster& roster) {
  PlanRequest request;
  request.operation = Operation::Barrier;
  request.algorithm = barrier::kAlgorithm;
  request.bytes.assign(static_cast<std::size_t>(roster.ranks()), 0);
  request.receive_offsets = request.bytes;
  return std::make_unique<CallPlan>(request, roster,
                                    PlanLimits{geometry().large_slot_bytes, UINT64_MAX});
}

class Rank {
 public:
  Rank(shm::NodeSegment segment, int ranks, int rank, const shm::WaitPolicy& policy)
      : roster_(roster_of(ranks, rank)),
        layouts_(static_cast<std::size_t>(ranks) + 1, layout_of(ranks)),
        segment_(std::move(segment)) {
    team_.rank = team_.local_rank = rank;
    team_.roster = &roster_;
    team_.layouts = &layouts_;
    team_.segment = &segment_;
    team_.wait_policy = policy;
    engine_ = std::make_unique<Engine>(team_, geometry(), 77);
  }
  const Roster& roster() const { return roster_; }
  int number() const { return team_.rank; }
  void run(const CallPlan& plan, const Buffers& buffers) {
    engine_->run(plan, buffers, base::Deadline::after(std::chrono::seconds(30)));
  }
  /// Makes one call; how many of its bytes are wrong.
  std::size_t allgather(const CallPlan& plan, std::size_t bytes, int turn) {
    std::vector<std::byte> receive(bytes * static_cast<std::size_t>(roster_.ranks()));
    return call(plan, bytes, turn, receive);
  }
  /// Only the root may look at its result.
  std::size_t gather(const CallPlan& plan, std::size_t bytes, int turn) {
    std::vector<std::byte> receive(bytes * static_cast<std::size_t>(roster_.ranks()));
    const std::size_t wrong = call(plan, bytes, turn, receive);
    return team_.rank == 0 ? wrong : 0;
  }
  /// `shared` is the one result of all ranks, which no rank may change before all have seen it.
  std::size_t allgather_shared(const CallPlan& plan, std::size_t bytes, int turn,
                               std::span<std::byte> shared) {
    return call(plan, bytes, turn, shared.first(bytes * static_cast<std::size_t>(roster_.ranks())),
                5);
  }

 private:
  std::size_t call(const CallPlan& plan, std::size_t bytes, int turn, std::span<std::byte> receive,
                   std::uint64_t place = 0) {
    const std::vector<std::byte> send(bytes, content(team_.rank, turn));
    Buffers buffers = ordinary_buffers(send, receive);
    buffers.place = place;
    run(plan, buffers);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < receive.size(); ++i) {
      wrong += receive[i] != content(static_cast<int>(i / bytes), turn);
    }
    return wrong;
  }
  static std::byte content(int rank, int turn) {
    return static_cast<std::byte>(1 + (rank * 37 + turn * 11) % 251);
  }

  Roster roster_;
  std::vector<shm::SegmentLayout> layouts_;
  shm::NodeSegment segment_;
  Team team_;
  std::unique_ptr<Engine> engine_;
};

std::vector<std::unique_ptr<Rank>> make_ranks(int count, const shm::WaitPolicy& policy) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (shm::NodeSegment& segment : shm::NodeSegment::in_memory(layout_of(count))) {
    const int rank = static_cast<int>(ranks.size());
    ranks.push_back(std::make_unique<Rank>(std::move(segment), count, rank, policy));
  }
  return ranks;
}

// Lines of flags, small slots, large ones, and results that are cut into slices (those are not
// walked, and come between calls that are).
constexpr std::size_t kSizes[] = {1, 8, 40, 41, 300, 900, 5000, 30'000};

// Into one result: in the lines of flags and through a slot by one rank for all, and by every rank.
constexpr std::size_t kSharedSizes[] = {8, 300, 700};
constexpr std::size_t kLargestShared = 700;
constexpr std::uint64_t kOnceBytes = 300;

/// What all ranks do alike, by the seed; they come to the calls at different times.
void make_calls(Rank& rank, unsigned seed, std::span<std::byte> shared) {
  const Roster& roster = rank.roster();
  std::vector<std::unique_ptr<CallPlan>> plans;
  for (const std::size_t bytes : kSizes) plans.push_back(allgather_plan(roster, bytes));
  const auto barrier = barrier_plan(roster);
  const auto gather = plan_of(roster, Operation::Gather, 24);
  std::vector<std::unique_ptr<CallPlan>> into_node;
  for (const std::size_t bytes : kSharedSizes) {
    into_node.push_back(
        plan_of(roster, Operation::Allgather, bytes, MemoryKind::NodeBuffer, kOnceBytes));
  }
  std::mt19937 same(seed);
  std::mt19937 own(seed * 100 + static_cast<unsigned>(rank.number()));
  for (int turn = 0; turn < 300; ++turn) {
    for (unsigned pauses = own() % 4; pauses > 1; --pauses) sched_yield();
    const std::size_t which = same() % (std::size(kSizes) + 3);
    std::size_t wrong = 0;
    if (which < std::size(kSizes)) {
      wrong = rank.allgather(*plans[which], kSizes[which], turn);
    } else if (which == std::size(kSizes)) {
      rank.run(*barrier, {});
    } else if (which == std::size(kSizes) + 1) {
      const std::size_t size = same() % std::size(kSharedSizes);
      wrong = rank.allgather_shared(*into_node[size], kSharedSizes[size], turn, shared);
    } else {
      // More in a row than there are slots: whoever only sends may not run too far ahead.
      for (int i = 0; i < 40; ++i) wrong += rank.gather(*gather, 24, turn + i);
    }
    if (wrong != 0) throw Error(Code::Internal, fmt::format("wrong bytes in turn {}", turn));
  }
}

void run_all(int count, const shm::WaitPolicy& policy, unsigned seed) {
  const auto ranks = make_ranks(count, policy);
  std::vector<std::byte> shared(kLargestShared * static_cast<std::size_t>(count));
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        make_calls(*ranks[i], seed, shared);
      } catch (const Error& thrown) {
        errors[i] = thrown.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "") << "seed " << seed;
}

TEST(NodeWalk, RanksWithCoresOfTheirOwn) {
  for (int count = 1; count <= 3; ++count) {
    run_all(count, shm::WaitPolicy{256, 1000}, static_cast<unsigned>(count));
  }
}

TEST(NodeWalk, RanksThatOutnumberCoresYieldAtEveryFlagThatIsNotRaised) {
  for (int count = 2; count <= 5; ++count) {
    run_all(count, shm::WaitPolicy::choose(true), 10U + static_cast<unsigned>(count));
  }
}

TEST(NodeWalk, RanksThatDoNotYieldStopAtEveryFlagThatIsNotRaised) {
  for (int count = 2; count <= 5; ++count) {
    run_all(count, shm::WaitPolicy{}, 20U + static_cast<unsigned>(count));
  }
}

TEST(NodeWalk, RanksThatMakeDifferentCallsAreToldSo) {
  for (const bool has_core : {true, false}) {
    const auto ranks = make_ranks(2, shm::WaitPolicy::choose(!has_core));
    std::vector<std::string> errors(2);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        const auto plan = allgather_plan(ranks[i]->roster(), 8 + i);
        try {
          ranks[i]->allgather(*plan, 8 + i, 0);
        } catch (const Error& thrown) {
          errors[i] = thrown.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    // Who comes last may find the other one's words in the record of the node.
    for (const std::string& error : errors) {
      EXPECT_NE(error.find("call 1 differs between ranks"), std::string::npos) << error;
    }
  }
}

TEST(NodeWalk, KnowsCallsOfOneSliceOnOneNodeOnly) {
  const Roster one = roster_of(3, 1);
  EXPECT_TRUE(allgather_plan(one, 8)->is_on_node());
  EXPECT_TRUE(allgather_plan(one, 5000)->is_on_node());
  EXPECT_TRUE(barrier_plan(one)->is_on_node());
  EXPECT_FALSE(allgather_plan(one, 30'000)->is_on_node());  // slices
  EXPECT_TRUE(plan_of(one, Operation::Allgather, 300, MemoryKind::NodeBuffer, 300)->is_on_node());
  const Roster leader(schedule::NodeMap({0, 0, 1}), 0);
  EXPECT_FALSE(allgather_plan(leader, 8)->is_on_node());
  EXPECT_FALSE(barrier_plan(leader)->is_on_node());
}

}  // namespace
}  // namespace allrail::coll
