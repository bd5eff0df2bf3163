// Many small calls with a root one after the other, where data goes one way only: nothing but done
// counts and acknowledgements comes back, and slots must be free again by them alone.
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "coll/engine_group.hpp"
#include "tests/unit/coll/engine_rank.hpp"

namespace allrail::coll {
namespace {

using testing::EngineRank;

constexpr int kNodes = 4;  // a binomial tree with a node in the middle: 3 - 2 - 0 - 1
constexpr std::uint64_t kCalls = 400;
constexpr std::int64_t kTickNs = 10'000;

struct Stream {
  Operation operation;
  int node_size;
  std::uint64_t bytes;  // of a block: small slots hold 4 KiB, of all blocks together
  int root = 0;
  const char* algorithm = nullptr;  // smp-binomial, or smp-direct of an allgather
};

/// Ranks that make calls one after the other, each of a kind that they have agreed on.
class Streaming {
 protected:
  explicit Streaming(int node_size, int nodes = kNodes)
      : network_(1, nodes * node_size, std::vector<transport::FakeRailOptions>(1)),
        ranks_(testing::make_engine_ranks(network_, nodes, node_size)) {}

  void prepare(const std::vector<Stream>& kinds) {
    for (int rank = 0; rank < ranks(); ++rank) {
      at(rank).engine = std::make_unique<Engine>(at(rank).team, testing::geometry(), 1, UINT64_MAX);
      Calls& mine = calls_.emplace_back();
      for (const Stream& kind : kinds) {
        Kind& one = mine.kinds.emplace_back();
        one.memory.resize(static_cast<std::size_t>(ranks()) * kind.bytes);
        one.plan = std::make_unique<CallPlan>(
            request(kind), at(rank).roster,
            PlanLimits{testing::geometry().large_slot_bytes, UINT64_MAX});
        one.run.plan = one.plan.get();
        one.run.buffers = {one.memory.data(), one.memory.data(), one.memory.size(),
                           one.memory.size()};
        at(rank).engine->connect(*one.plan);
      }
    }
    // Only then is a tick without progress a stall.
    for (int i = 0; i < 1000; ++i) {
      for (auto& rank : ranks_) rank->fabric->progress();
      network_.advance(100'000);
    }
  }

  int ranks() const { return static_cast<int>(ranks_.size()); }
  PlanRequest request(const Stream& kind) const {
    PlanRequest request;
    request.operation = kind.operation;
    request.root = kind.operation == Operation::Allgather ? -1 : kind.root;
    const bool is_allgather = kind.operation == Operation::Allgather;
    request.algorithm = kind.algorithm != nullptr ? kind.algorithm
                        : is_allgather            ? "smp-direct"
                                                  : "smp-binomial";
    request.bytes.assign(static_cast<std::size_t>(ranks()), kind.bytes);
    for (int rank = 0; rank < ranks(); ++rank)
      request.receive_offsets.push_back(static_cast<std::uint64_t>(rank) * kind.bytes);
    return request;
  }

  /// Whether the rank has ended all its calls; the next one starts as soon as one has ended.
  bool go_on(int rank) {
    Calls& mine = calls_[static_cast<std::size_t>(rank)];
    while (mine.ended < wanted_.size()) {
      CallRun& run = mine.kinds[wanted_[mine.ended]].run;
      if (walks_ && run.plan->is_on_node()) {
        at(rank).engine->run(*run.plan, run.buffers, base::Deadline::never());
        ++mine.ended;
        continue;
      }
      if (!mine.started) at(rank).engine->start(run);
      mine.started = true;
      if (!at(rank).engine->test(run)) return false;
      mine.started = false;
      ++mine.ended;
    }
    // What is left of it may be read by others.
    at(rank).engine->idle_progress();
    return true;
  }

  /// So many more calls of that kind.
  void make_calls(std::uint64_t calls, std::size_t kind = 0) {
    wanted_.insert(wanted_.end(), calls, kind);
    const std::int64_t end_ns = network_.now_ns() + 10'000'000'000;
    for (bool over = false; !over;) {
      ASSERT_LT(network_.now_ns(), end_ns) << "the calls do not end";
      over = true;
      const bool all = network_.now_ns() / kTickNs % late_ == 0;
      for (int rank = 0; rank < ranks(); ++rank) over = (rank == 0 || all) && go_on(rank) && over;
      network_.advance(kTickNs);
    }
  }

  EngineRank& at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

  struct Kind {
    std::unique_ptr<CallPlan> plan;
    std::vector<std::byte> memory;
    CallRun run;
  };
  struct Calls {
    std::deque<Kind> kinds;
    std::size_t ended = 0;
    bool started = false;
  };
  transport::FakeNetwork network_;
  std::vector<std::unique_ptr<EngineRank>> ranks_;
  std::deque<Calls> calls_;          // by rank; engines keep pointers to them
  std::vector<std::size_t> wanted_;  // kinds of all calls
  int late_ = 1;                     // all but rank 0 look at every so many ticks only
  bool walks_ = false;               // calls that a rank can make past the queue
};

class RootedStream : public Streaming, public ::testing::TestWithParam<Stream> {
 protected:
  RootedStream() : Streaming(GetParam().node_size) {}
  void SetUp() override { prepare({GetParam()}); }
  static std::uint64_t bytes() { return GetParam().bytes; }
};

TEST_P(RootedStream, NeverWaitsForAClock) {
  const std::int64_t started_ns = network_.now_ns();
  ASSERT_NO_FATAL_FAILURE(make_calls(kCalls));
  // Slots are free again after a way there and back over two links of 5 us, half of the small ones
  // at once; the root moves a byte per ns. Who is told only when it has waited for long, by the
  // real clock, lets much more time go by here.
  const auto per_call_ns = (network_.now_ns() - started_ns) / static_cast<std::int64_t>(kCalls);
  RecordProperty("ns_per_call", static_cast<int>(per_call_ns));
  const auto root_bytes = bytes() * static_cast<std::uint64_t>(ranks() - GetParam().node_size);
  EXPECT_LT(per_call_ns, 5'000 + 2 * static_cast<std::int64_t>(root_bytes));
}

using StreamFromRoot = RootedStream;

/// Every put of the root of a scatter or broadcast says how far its node is, so nothing else has
/// to.
TEST_P(StreamFromRoot, TellsNobodyWhatHeadersSay) {
  // Whoever waits for long tells it all the same, and how long that is depends on the machine.
  for (auto& rank : ranks_) rank->team.slow_check_ns = std::numeric_limits<std::int64_t>::max() / 2;
  const int before = at(0).registrations.messages;
  ASSERT_NO_FATAL_FAILURE(make_calls(kCalls));
  EXPECT_LT(at(0).registrations.messages - before, 20) << "messages in 400 calls";
}

class ChangingStream : public Streaming, public ::testing::TestWithParam<int> {
 protected:
  ChangingStream() : Streaming(GetParam()) {}
};

/// What headers said in allgathers is long ago when calls with a root of four slots each have gone
/// around the ring: the next small ones need a count that is newer.
TEST_P(ChangingStream, NeverWaitsForAClock) {
  const auto node_size = static_cast<std::uint64_t>(GetParam());
  prepare({{Operation::Allgather, GetParam(), 8},
           {Operation::Broadcast, GetParam(), 5000},
           {Operation::Broadcast, GetParam(), 8}});
  // Only a clock that stands still would tell these.
  for (auto& rank : ranks_) rank->team.slow_check_ns = std::numeric_limits<std::int64_t>::max() / 2;
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (const std::uint64_t large : {11, 12, 15}) {
      ASSERT_NO_FATAL_FAILURE(make_calls(70 + node_size, 0));
      for (std::uint64_t call = 0; call < large + 20 + round; ++call) {
        wanted_.push_back(call < large ? 1 : 2);
      }
      ASSERT_NO_FATAL_FAILURE(make_calls(20, 2));
    }
  }
}

/// A root believes to have told in the header of a call that begins a new round of the ring, and
/// the others await that header behind their own puts.
TEST_P(ChangingStream, NeverWaitsForWhatAPutBringsThatIsAwaitedLater) {
  prepare({{Operation::Allgather, GetParam(), 8},
           {Operation::Allgather, GetParam(), 8, 0, "smp-recursive-doubling"},
           {Operation::Scatter, GetParam(), 1200, 0, "smp-direct"},
           {Operation::Scatter, GetParam(), 300, 0, "smp-direct"}});
  for (auto& rank : ranks_) rank->team.slow_check_ns = std::numeric_limits<std::int64_t>::max() / 2;
  for (std::uint64_t calls = 1; calls < 80; ++calls) {
    for (const std::size_t exchange : {0, 1}) {
      wanted_.insert(wanted_.end(), calls, 2 + calls % 2);
      ASSERT_NO_FATAL_FAILURE(make_calls(1, exchange)) << calls << " calls before it";
    }
  }
}

class StreamOfTwo : public Streaming, public ::testing::Test {
 protected:
  StreamOfTwo() : Streaming(1, 2) {}
};

/// As above, where the header is already here.
TEST_F(StreamOfTwo, ReadsTheHeaderThatSaysWhatAPutWaitsFor) {
  prepare({{Operation::Allgather, 1, 8, 0, "smp-recursive-doubling"},
           {Operation::Scatter, 1, 2400, 0, "smp-direct"},
           {Operation::Scatter, 1, 300, 0, "smp-direct"}});
  for (auto& rank : ranks_) rank->team.slow_check_ns = std::numeric_limits<std::int64_t>::max() / 2;
  for (std::uint64_t calls = 1; calls < 80; ++calls) {
    for (const int late : {1, 2, 5, 13}) {
      wanted_.insert(wanted_.end(), calls, 1 + calls % 2);
      late_ = late;
      ASSERT_NO_FATAL_FAILURE(make_calls(1, 0)) << calls << " calls before it, " << late;
    }
  }
}

/// Chunks that lie in rails for a while, and the calls that they belong to.
class HeldStream : public Streaming, public ::testing::Test {
 protected:
  HeldStream() : Streaming(1) {
    prepare(
        {{Operation::Broadcast, 1, 8}, {Operation::Gather, 1, 8}, {Operation::Allgather, 1, 8}});
  }
  transport::FakeNetwork::Use use() {
    transport::FakeNetwork::Use all;
    for (int from = 0; from < ranks(); ++from) {
      for (int to = 0; to < ranks(); ++to) {
        if (from == to) continue;
        const transport::FakeNetwork::Use one = network_.use({from, 0}, {to, 0});
        all.held_chunks += one.held_chunks;
        all.batches += one.batches;
      }
    }
    return all;
  }
  std::uint64_t held() { return use().held_chunks; }
  /// Calls of the root until one is held.
  void start_until_held() {
    CallRun& run = calls_[0].kinds[kBroadcast].run;
    for (int call = 0; call < 20 && !at(0).fabric->holds(); ++call) at(0).engine->start(run);
    ASSERT_TRUE(at(0).fabric->holds());
  }

  static constexpr std::size_t kBroadcast = 0;
  static constexpr std::size_t kGather = 1;
  static constexpr std::size_t kAllgather = 2;
};

TEST_F(HeldStream, BeginsWithSomeCallsThatAreAlike) {
  std::uint64_t before = 0;
  for (const std::size_t kind : {kBroadcast, kGather}) {
    // The first one answers what came before, and four are sent at once.
    ASSERT_NO_FATAL_FAILURE(make_calls(5, kind));
    EXPECT_EQ(held(), before);
    ASSERT_NO_FATAL_FAILURE(make_calls(40, kind));
    EXPECT_GT(held(), before + 40);
    EXPECT_LT(2 * use().batches, held()) << "some leave together";
    before = held();
  }
}

TEST_F(HeldStream, SaysToItsGroupThatItHolds) {
  EngineGroup group;
  int told = 0;
  group.set_on_held([&told] { ++told; });
  for (const int rank : {0, 1}) {
    group.join(*at(rank).engine);
    at(rank).team.group = &group;
  }
  ASSERT_NO_FATAL_FAILURE(start_until_held());
  EXPECT_EQ(told, 1);
  group.hand_over_others(*at(0).engine);
  EXPECT_TRUE(at(0).fabric->holds()) << "its own next call does not";
  group.hand_over_others(*at(1).engine);
  EXPECT_FALSE(at(0).fabric->holds()) << "a call of another communicator hands over";
  EXPECT_TRUE(network_.all_submitted(0));
  ASSERT_NO_FATAL_FAILURE(start_until_held());
  EXPECT_FALSE(group.idle_progress());
  EXPECT_FALSE(at(0).fabric->holds()) << "so does whoever comes while the user is away";
  for (int call = 0; call < 2; ++call) {
    ASSERT_NO_FATAL_FAILURE(start_until_held());
    at(1).engine->start(calls_[1].kinds[kGather].run);
    EXPECT_FALSE(at(0).fabric->holds()) << "whether or not that is one of a stream itself";
  }
}

/// As where a socket is full, and the call that put it there has ended.
TEST_F(HeldStream, IsHeldAsLongAsItsRailHasSomeOfIt) {
  EngineGroup group;
  group.join(*at(0).engine);
  ASSERT_NO_FATAL_FAILURE(start_until_held());
  at(0).registrations.is_stuck = true;
  at(0).engine->hand_over();
  EXPECT_TRUE(network_.all_submitted(0));
  EXPECT_TRUE(at(0).fabric->holds());
  EXPECT_FALSE(at(0).fabric->flushed());
  EXPECT_TRUE(group.idle_progress()) << "whoever comes has to come again";
  at(0).registrations.is_stuck = false;
  EXPECT_FALSE(group.idle_progress());
  EXPECT_FALSE(at(0).fabric->holds());
}

class WalkedStream : public Streaming, public ::testing::Test {
 protected:
  WalkedStream() : Streaming(2) {
    prepare({{Operation::Gather, 2, 8, 0, "direct"}, {Operation::Gather, 2, 8, 4}});
    walks_ = true;
  }
};

/// The second rank of a node gives its block to the first and is through.
TEST_F(WalkedStream, EndsWithACallThatWentPastTheQueue) {
  for (int round = 0; round < 20; ++round) {
    ASSERT_NO_FATAL_FAILURE(make_calls(1, 0));
    ASSERT_NO_FATAL_FAILURE(make_calls(1, 1));
  }
  EXPECT_EQ(network_.use({3, 0}, {0, 0}).held_chunks, 0U);
  ASSERT_NO_FATAL_FAILURE(make_calls(30, 0));
  EXPECT_GT(network_.use({3, 0}, {0, 0}).held_chunks, 10U);
}

/// What it left in its rails would stay there: a rank that is through at once looks at none.
TEST_F(WalkedStream, LeavesBeforeACallThatGoesPastTheQueue) {
  ASSERT_NO_FATAL_FAILURE(make_calls(20, 0));
  CallRun& put = calls_[3].kinds[0].run;
  for (int call = 0; call < 20 && !at(3).fabric->holds(); ++call) at(3).engine->start(put);
  ASSERT_TRUE(at(3).fabric->holds());
  const CallRun& walked = calls_[3].kinds[1].run;
  ASSERT_TRUE(walked.plan->is_on_node());
  at(3).engine->run(*walked.plan, walked.buffers, base::Deadline::never());
  EXPECT_FALSE(at(3).fabric->holds());
}

TEST_F(WalkedStream, LeavesBeforeAStartedCallOfAnotherRoot) {
  ASSERT_NO_FATAL_FAILURE(make_calls(20, 0));
  CallRun& put = calls_[3].kinds[0].run;
  for (int call = 0; call < 20 && !at(3).fabric->holds(); ++call) at(3).engine->start(put);
  ASSERT_TRUE(at(3).fabric->holds());
  at(3).engine->start(calls_[3].kinds[1].run);
  EXPECT_FALSE(at(3).fabric->holds());
}

/// A piece would wait for the ones behind it.
TEST_F(HeldStream, IsNotOfCallsThatPutToSomebodyTwice) {
  PlanRequest wanted = request({Operation::Broadcast, 1, 400});
  const PlanLimits limits{testing::geometry().large_slot_bytes, UINT64_MAX};
  EXPECT_TRUE(CallPlan(wanted, at(0).roster, limits).may_coalesce());
  wanted.algorithm = "smp-scatter-allgather";
  EXPECT_FALSE(CallPlan(wanted, at(1).roster, limits).may_coalesce());
  wanted = request({Operation::Allgather, 1, 400});
  EXPECT_FALSE(CallPlan(wanted, at(0).roster, limits).may_coalesce());
}

TEST_F(HeldStream, EndsWithWhateverComesInBetween) {
  for (int round = 0; round < 20; ++round) {
    for (const std::size_t kind : {kBroadcast, kAllgather, kBroadcast, kGather}) {
      ASSERT_NO_FATAL_FAILURE(make_calls(1, kind));
    }
  }
  ASSERT_NO_FATAL_FAILURE(make_calls(5, kAllgather));
  EXPECT_EQ(held(), 0U);
}

std::vector<Stream> streams(std::initializer_list<Operation> operations,
                            std::initializer_list<std::uint64_t> sizes) {
  std::vector<Stream> all;
  for (const Operation operation : operations) {
    for (const int node_size : {1, 2}) {
      for (const std::uint64_t bytes : sizes) all.push_back({operation, node_size, bytes});
    }
  }
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Stream>& one) {
  return operation_name(one.param.operation) + std::string("_x") +
         std::to_string(one.param.node_size) + "_of_" + std::to_string(one.param.bytes);
}

INSTANTIATE_TEST_SUITE_P(Operations, RootedStream,
                         ::testing::ValuesIn(streams({Operation::Gather, Operation::Scatter,
                                                      Operation::Broadcast},
                                                     {8, 5000})),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Nodes, ChangingStream, ::testing::Values(1, 2));
// Of large calls only four are under way: a count that rises by two is too late in a header.
INSTANTIATE_TEST_SUITE_P(Operations, StreamFromRoot,
                         ::testing::ValuesIn(streams({Operation::Scatter, Operation::Broadcast},
                                                     {8})),
                         name_of);

}  // namespace
}  // namespace allrail::coll
