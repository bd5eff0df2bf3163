// Rank 1 of a job is out of memory somewhere in a call, at each place in turn: it says so by an
// Error, and the others are told, so that nobody waits for it.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <allrail/allrail.hpp>
#include <gtest/gtest.h>

#include "tests/counts/in_process_bootstrap.hpp"
#include "tests/unit/job/failing_new.hpp"

namespace allrail {
namespace {

using namespace std::chrono_literals;

constexpr int kRanks = 2;
constexpr std::size_t kBlock = 500;
// Of the places beyond these every so many is tried, all with ALLRAIL_TEST_LONG=1.
constexpr std::uint64_t kEachPlace = 6;
constexpr std::uint64_t kStride = 9;

/// What a rank has for its calls.
struct Rank {
  Communicator communicator;
  std::vector<std::byte> send = std::vector<std::byte>(kBlock * kRanks);
  std::vector<std::byte> receive = std::vector<std::byte>(kBlock * kRanks);
  std::vector<std::size_t> counts = std::vector<std::size_t>(kRanks, kBlock);
  std::vector<std::size_t> places{0, kBlock};
  std::optional<Plan> plan;
  Buffer<std::byte> buffer;
  std::optional<Communicator> part;

  explicit Rank(const Options& options) : communicator(Communicator::world(options)) {}
};

struct Case {
  const char* name;
  std::function<void(Rank&)> before;  // in which all have memory
  std::function<void(Rank&)> call;
  /// Where it fails the job may go on.
  bool may_go_on = false;
};

void nothing(Rank&) {}

void alltoallv(Rank& rank) {
  rank.communicator.alltoallv(rank.send, rank.receive, rank.counts, rank.places, rank.counts,
                              rank.places);
}

void start(Rank& rank) {
  rank.plan->start();
  rank.plan->wait();
}

std::vector<Case> cases() {
  return {
      {"barrier", nothing, [](Rank& r) { r.communicator.barrier(); }},
      {"allgather", nothing,
       [](Rank& r) { r.communicator.allgather(std::span(r.send).first(kBlock), r.receive); }},
      {"allgatherv", nothing,
       [](Rank& r) {
         r.communicator.allgatherv(std::span(r.send).first(kBlock), r.receive, r.counts, r.places);
       }},
      {"gatherv", nothing,
       [](Rank& r) {
         r.communicator.gatherv(std::span(r.send).first(kBlock), r.receive, r.counts, r.places, 1);
       }},
      {"alltoall", nothing, [](Rank& r) { r.communicator.alltoall(r.send, r.receive); }},
      {"alltoallv", nothing, alltoallv},
      {"alltoallv by known counts", alltoallv, alltoallv},
      {"making a plan", nothing,
       [](Rank& r) {
         r.plan = r.communicator.plan_allgather(std::span(r.send).first(kBlock), r.receive);
         r.communicator.barrier();
       }},
      {"a plan",
       [](Rank& r) {
         r.plan = r.communicator.plan_allgather(std::span(r.send).first(kBlock), r.receive);
       },
       start},
      {"allocate", nothing, [](Rank& r) { r.buffer = r.communicator.allocate<std::byte>(kBlock); },
       true},
      {"split", nothing, [](Rank& r) { r.part = r.communicator.split(0, r.communicator.rank()); },
       true},
  };
}

/// How a call ended: a code's name, empty where it did what it says.
struct Ending {
  std::string code;
  std::string text;
};

Ending ending_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const Error& error) {
    testing::stop_failing();
    return {code_name(error.code()), error.what()};
  } catch (const std::bad_alloc&) {
    testing::stop_failing();
    return {"std::bad_alloc", ""};
  }
}

struct Endings {
  Ending call;
  Ending after;  // of the next call, which has memory
};

/// A job in which allocation `number` of rank 1 in that call fails. False: it makes fewer.
bool run(const Case& one, std::uint64_t number, const char* nodes, bool and_later,
         std::array<Endings, kRanks>& endings) {
  Options options;
  options.rails = "127.0.0.1";
  options.nodes = nodes;
  options.node_memory_bytes = 1 << 20;
  options.timeout = 20s;
  options.log = "error";
  options.single_copy = "off";
  std::atomic<bool> failed = false;
  counts::run_as_ranks(kRanks, [&](int number_of_rank) {
    Rank rank(options);
    one.before(rank);
    Endings& mine = endings[static_cast<std::size_t>(number_of_rank)];
    if (number_of_rank == 1) testing::fail_allocation(number, and_later);
    mine.call = ending_of([&] { one.call(rank); });
    if (testing::stop_failing()) failed = true;
    mine.after = ending_of([&] { rank.communicator.barrier(); });
  });
  return failed;
}

void expect_told(const Case& one, const std::array<Endings, kRanks>& endings) {
  const auto& [other, mine] = endings;
  if (mine.call.code.empty()) {
    // A sort, say, that does without.
    EXPECT_EQ(other.call.code + other.after.code + mine.after.code, "");
    return;
  }
  EXPECT_EQ(mine.call.code, "resource-limit") << mine.call.text;
  EXPECT_NE(mine.call.text.find("ulimit -v"), std::string::npos) << mine.call.text;
  if (one.may_go_on && mine.after.code.empty()) {
    EXPECT_EQ(other.call.code, "resource-limit") << other.call.text;
    EXPECT_EQ(other.after.code, "") << other.after.text;
    return;
  }
  EXPECT_NE(mine.after.code, "") << "only this rank knows";
  // It may have had all that it needed of rank 1.
  const Ending& told = other.call.code.empty() ? other.after : other.call;
  EXPECT_EQ(told.code, "resource-limit") << told.text;
  EXPECT_NE(told.text.find("rank 1: "), std::string::npos) << told.text;
}

/// The nodes, and whether all later allocations fail, too.
using Way = std::tuple<const char*, bool>;
class NoMemory : public ::testing::TestWithParam<Way> {};

TEST_P(NoMemory, IsAnErrorOnAllRanksWhereverItIsMissing) {
  const auto& [nodes, and_later] = GetParam();
  const char* const setting = std::getenv("ALLRAIL_TEST_LONG");
  const bool is_long = setting != nullptr && std::string(setting) == "1";
  for (const Case& one : cases()) {
    std::uint64_t places = 0;
    for (std::uint64_t number = 1;; number += is_long || number < kEachPlace ? 1 : kStride) {
      SCOPED_TRACE(std::string(one.name) + ", allocation " + std::to_string(number));
      std::array<Endings, kRanks> endings;
      if (!run(one, number, nodes, and_later, endings)) break;
      expect_told(one, endings);
      ++places;
      if (HasFailure()) return;
    }
    std::cout << one.name << ": " << places << " places\n";
  }
}

INSTANTIATE_TEST_SUITE_P(OnceOrFromThenOn, NoMemory,
                         ::testing::Combine(::testing::Values("", "2"), ::testing::Bool()));

}  // namespace
}  // namespace allrail
