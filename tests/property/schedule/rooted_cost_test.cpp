#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "coll/schedule/cost.hpp"
#include "tests/property/schedule/rooted_call.hpp"

// Steps and blocks of gather, scatter, broadcast and alltoall against the papers' formulas at
// powers of k + 1, and against what docs/algorithms.md says for every other size.
namespace allrail::schedule::testing {
namespace {

constexpr int kSizes = 66;
constexpr int kPorts = 4;

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

int ceil_log(int n, int ports) {
  int steps = 0;
  for (std::int64_t reach = 1; reach < n; reach *= ports + 1) ++steps;
  return steps;
}

bool is_power(int n, int ports) {
  std::int64_t power = 1;
  while (power < n) power *= ports + 1;
  return power == n;
}

template <class Check>
void for_all_sizes(const Check& check) {
  for (int n = 1; n <= kSizes; ++n) {
    for (int ports = 1; ports <= kPorts; ++ports) {
      SCOPED_TRACE("n = " + std::to_string(n) + ", k = " + std::to_string(ports));
      check(n, ports);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

template <class Cost>
void expect_tree(const Cost& cost, int n, int ports) {
  EXPECT_EQ(cost.steps, ceil_log(n, ports));
  if (is_power(n, ports)) {
    EXPECT_EQ(cost.blocks_per_port * ports, n - 1);
  } else {
    EXPECT_GE(cost.blocks_per_port * ports, n - 1);
  }
}

TEST(RootedCost, BinomialGatherAndScatterAreTheFormulaAtPowers) {
  for_all_sizes([](int n, int ports) {
    expect_tree(cost_of_exchange(coll::gather::binomial, n, ports), n, ports);
    expect_tree(cost_of_exchange(coll::scatter::binomial, n, ports), n, ports);
  });
}

TEST(RootedCost, DirectGatherAndScatterTakeAsManyStepsAsPortsAllow) {
  for_all_sizes([](int n, int ports) {
    for (const auto exchange : {coll::gather::direct, coll::scatter::direct}) {
      const ExchangeCost cost = cost_of_exchange(exchange, n, ports);
      EXPECT_EQ(cost.steps, ceil_divide(n - 1, ports));
      EXPECT_EQ(cost.blocks_per_port, ceil_divide(n - 1, ports));
    }
  });
}

struct BroadcastCost {
  int steps = 0;
  std::int64_t pieces_sent = 0;  // by whoever sends most
};

BroadcastCost broadcast_cost(decltype(coll::broadcast::binomial) exchange, int n, int ports,
                             int pieces) {
  BroadcastCost cost;
  std::vector<std::int64_t> received(n, 0);
  for (int me = 0; me < n; ++me) {
    std::int64_t sent = 0;
    const Exchange mine = exchange(n, me, ports, pieces);
    cost.steps = static_cast<int>(mine.rounds.size());
    for (const Round& round : mine.rounds) {
      EXPECT_LE(static_cast<int>(round.puts.size()), std::max(1, ports));
      for (const Transfer& put : round.puts) {
        sent += put.count;
        received[put.peer] += put.count;
      }
    }
    cost.pieces_sent = std::max(cost.pieces_sent, sent);
  }
  for (int me = 0; me < n; ++me) EXPECT_EQ(received[me], me == 0 ? 0 : pieces);
  return cost;
}

TEST(RootedCost, BroadcastsSendEveryPieceOnceToEverybody) {
  for_all_sizes([](int n, int ports) {
    EXPECT_EQ(broadcast_cost(coll::broadcast::binomial, n, ports, 1).steps, ceil_log(n, ports));
    const BroadcastCost chain = broadcast_cost(coll::broadcast::chain, n, ports, 7);
    EXPECT_EQ(chain.steps, n == 1 ? 0 : 7 + n - 2);
    EXPECT_EQ(chain.pieces_sent, n == 1 ? 0 : 7);
    const BroadcastCost ring = broadcast_cost(coll::broadcast::scatter_allgather, n, ports, n);
    EXPECT_EQ(ring.steps, ceil_divide(n - 1, ports) + n - 1);
    EXPECT_EQ(ring.pieces_sent, 2 * (n - 1));
  });
}

struct PairCost {
  int steps = 0;
  std::size_t most_blocks = 0;  // of a port in a step
};

PairCost pair_cost(PairExchangeFunction exchange, int n, int ports) {
  PairCost cost;
  for (int me = 0; me < n; ++me) {
    const PairExchange mine = exchange(n, me, ports);
    cost.steps = static_cast<int>(mine.rounds.size());
    for (const PairRound& round : mine.rounds) {
      EXPECT_LE(static_cast<int>(round.puts.size()), ports);
      for (const PairTransfer& put : round.puts) {
        cost.most_blocks = std::max(cost.most_blocks, put.blocks.size());
      }
    }
  }
  return cost;
}

TEST(RootedCost, DirectAlltoallIsAsManySteps) {
  for_all_sizes([](int n, int ports) {
    const PairCost cost = pair_cost(coll::alltoall::direct, n, ports);
    EXPECT_EQ(cost.steps, ceil_divide(n - 1, ports));
    EXPECT_EQ(cost.most_blocks, n == 1 ? 0U : 1U);
  });
}

TEST(RootedCost, BruckAlltoallTakesLogSteps) {
  for_all_sizes([](int n, int ports) {
    const PairCost cost = pair_cost(coll::alltoall::bruck, n, ports);
    EXPECT_EQ(cost.steps, ceil_log(n, ports));
    if (n > 1 && is_power(n, ports)) {
      EXPECT_EQ(cost.most_blocks, static_cast<std::size_t>(n / (ports + 1)));
    }
    // As many as there are numbers of the digits beside the one that a step is about.
    std::size_t most = 1;
    for (int step = 1; step < ceil_log(n, ports); ++step) {
      most *= static_cast<std::size_t>(ports + 1);
    }
    EXPECT_LE(cost.most_blocks, most);
  });
}

/// The bases that participants are numbered to: the largest divisors of what is left up to k + 1,
/// then its least factors.
std::vector<int> mixed_bases(int n, int ports) {
  std::vector<int> bases;
  for (int rest = n; rest > 1; rest /= bases.back()) {
    int base = std::min(rest, ports + 1);
    while (rest % base != 0) --base;
    for (int factor = 2; base == 1; ++factor) {
      if (rest % factor == 0) base = factor;
    }
    bases.push_back(base);
  }
  return bases;
}

TEST(RootedCost, RecursiveDoublingAlltoallTakesTheStepsAndBlocksOfItsBases) {
  for_all_sizes([](int n, int ports) {
    std::vector<std::size_t> blocks;  // of every put, by step
    for (const int base : mixed_bases(n, ports)) {
      blocks.insert(blocks.end(), static_cast<std::size_t>(ceil_divide(base - 1, ports)),
                    static_cast<std::size_t>(n / base));
    }
    if (is_power(n, ports)) {
      EXPECT_EQ(static_cast<int>(blocks.size()), ceil_log(n, ports));
    }
    for (int me = 0; me < n; ++me) {
      const PairExchange mine = coll::alltoall::recursive_doubling(n, me, ports);
      ASSERT_EQ(mine.rounds.size(), blocks.size());
      for (std::size_t step = 0; step < blocks.size(); ++step) {
        EXPECT_LE(static_cast<int>(mine.rounds[step].puts.size()), ports);
        for (const PairTransfer& put : mine.rounds[step].puts) {
          EXPECT_EQ(put.blocks.size(), blocks[step]) << "step " << step;
        }
      }
    }
  });
}

TEST(RootedCost, RecursiveDoublingAlltoallOfPrimesIsDirect) {
  for (const auto& [n, ports] : {std::pair(5, 1), {5, 3}, {7, 2}, {13, 4}, {61, 4}}) {
    const PairCost cost = pair_cost(coll::alltoall::recursive_doubling, n, ports);
    EXPECT_EQ(cost.steps, ceil_divide(n - 1, ports)) << n;
    EXPECT_EQ(cost.most_blocks, 1U) << n;
  }
}

TEST(RootedCost, SmpFormsSendOneMessagePerNode) {
  std::vector<int> node_of;
  for (int rank = 0; rank < 24; ++rank) node_of.push_back(rank / 6);
  const Shape shape = uniform_shape(NodeMap(node_of), 16, 1, 1);
  const auto expect_messages = [](const RootedCall& call, const std::string& what) {
    int puts = 0;
    for (const Schedule& schedule : call.call.schedules) {
      puts += static_cast<int>(std::ranges::count(schedule.steps, StepKind::Put, &Step::kind));
    }
    EXPECT_EQ(puts, 3) << what;
  };
  for (const char* name : {"smp-direct", "smp-binomial"}) {
    for (const int root : {0, 7}) {
      const std::string what = std::string(name) + ", root " + std::to_string(root);
      expect_messages(make_gather(*coll::gather::find_algorithm(name), shape, root), what);
      expect_messages(make_scatter(*coll::scatter::find_algorithm(name), shape, root), what);
    }
  }
}

TEST(RootedCost, SmpFormsSendOneMessagePerPairOfNodes) {
  std::vector<int> node_of;
  for (int rank = 0; rank < 24; ++rank) node_of.push_back(rank / 6);
  const NodeMap map(node_of);
  const RootedCall alltoall = make_alltoall(*coll::alltoall::find_algorithm("smp-direct"), {map}, 1,
                                            [](int, int) -> std::uint64_t { return 16; });
  std::vector<int> puts(24, 0);
  for (int rank = 0; rank < 24; ++rank) {
    for (const Step& step : alltoall.call.schedules[rank].steps) {
      if (step.kind != StepKind::Put) continue;
      ++puts[rank];
      EXPECT_EQ(step.bytes, kHeaderBytes + 6 * 6 * 16);
    }
    EXPECT_EQ(puts[rank], rank % 6 == 0 ? 3 : 0);
  }
}

}  // namespace
}  // namespace allrail::schedule::testing
