#include <set>

#include <gtest/gtest.h>

#include "coll/allgather/allgather.hpp"
#include "coll/schedule/cost.hpp"
#include "tests/property/effort.hpp"

// Steps and bytes of every algorithm against the papers' formulas at powers of k + 1 (direct and
// ring: everywhere), and against the closed forms of docs/algorithms.md for every other size.
namespace allrail::schedule::testing {
namespace {

namespace algorithm = coll::allgather;

constexpr int kSizes = 130;
constexpr int kPorts = 8;

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// ceil(log_{k+1} n)
int ceil_log(int n, int ports) {
  int steps = 0;
  for (std::int64_t reach = 1; reach < n; reach *= ports + 1) {
    ++steps;
  }
  return steps;
}

bool is_power(int n, int ports) {
  std::int64_t power = 1;
  while (power < n) {
    power *= ports + 1;
  }
  return power == n;
}

template <class Check>
void for_all_sizes(ExchangeFunction exchange, const Check& check) {
  property::Sample sample;
  for (int n = 1; n <= kSizes; ++n) {
    for (int ports = 1; ports <= kPorts; ++ports) {
      if (!sample.takes_next()) continue;
      SCOPED_TRACE("n = " + std::to_string(n) + ", k = " + std::to_string(ports));
      check(n, ports, cost_of_exchange(exchange, n, ports));
      if (::testing::Test::HasFailure()) {
        return;
      }
    }
  }
}

TEST(AllgatherCost, DirectIsFormulaTwo) {
  for_all_sizes(algorithm::direct, [](int n, int ports, const ExchangeCost& cost) {
    EXPECT_EQ(cost.steps, ceil_divide(n - 1, ports));
    EXPECT_EQ(cost.blocks_per_port, ceil_divide(n - 1, ports));
  });
}

TEST(AllgatherCost, RingIsAsDirect) {
  for_all_sizes(algorithm::ring, [](int n, int ports, const ExchangeCost& cost) {
    EXPECT_EQ(cost.steps, ceil_divide(n - 1, ports));
    EXPECT_EQ(cost.blocks_per_port, ceil_divide(n - 1, ports));
  });
}

TEST(AllgatherCost, RingHasFixedNeighbours) {
  for (int n = 2; n <= kSizes; ++n) {
    for (int ports = 1; ports <= kPorts; ++ports) {
      std::set<int> peers;
      for (const Round& round : algorithm::ring(n, 1, ports).rounds) {
        for (const Transfer& put : round.puts) {
          peers.insert(put.peer);
        }
      }
      EXPECT_EQ(static_cast<int>(peers.size()), std::min(ports, n - 1)) << n << " " << ports;
    }
  }
}

TEST(AllgatherCost, BruckIsFormulaOneEverywhere) {
  for_all_sizes(algorithm::bruck, [](int n, int ports, const ExchangeCost& cost) {
    EXPECT_EQ(cost.steps, ceil_log(n, ports));
    EXPECT_EQ(cost.blocks_per_port, ceil_divide(n - 1, ports));
    if (is_power(n, ports)) {
      EXPECT_EQ(cost.blocks_per_port * ports, n - 1);
    }
  });
}

TEST(AllgatherCost, RecursiveDoublingIsFormulaThreeAndNeverAboveFour) {
  for_all_sizes(algorithm::recursive_doubling, [](int n, int ports, const ExchangeCost& cost) {
    EXPECT_EQ(cost.steps, ceil_log(n, ports));
    EXPECT_EQ(cost.blocks_per_port, ceil_divide(n - 1, ports));
    if (is_power(n, ports)) {
      EXPECT_EQ(cost.blocks_per_port * ports, n - 1);  // formula (3)
    } else {
      EXPECT_LE(cost.steps, (ports + 1) * ceil_log(n, ports));  // formula (4), in whole blocks
      EXPECT_LE(cost.blocks_per_port, ceil_divide(n - 1, ports));
    }
  });
}

TEST(AllgatherCost, RecursiveDoublingExchangesInAlignedGroupsAtPowers) {
  for (const auto& [n, ports] : {std::pair{8, 1}, {64, 1}, {9, 2}, {27, 2}, {64, 3}, {25, 4}}) {
    for (int me = 0; me < n; ++me) {
      int group = 1;
      for (const Round& round : algorithm::recursive_doubling(n, me, ports).rounds) {
        std::multiset<int> to;
        std::multiset<int> from;
        for (const Transfer& put : round.puts) {
          EXPECT_EQ(put.peer / (group * (ports + 1)), me / (group * (ports + 1)));
          EXPECT_EQ(put.peer % group, me % group);
          EXPECT_EQ(put.count, group);
          to.insert(put.peer);
        }
        for (const Transfer& await : round.awaits) {
          from.insert(await.peer);
        }
        EXPECT_EQ(to, from);  // an exchange goes both ways
        EXPECT_EQ(static_cast<int>(to.size()), ports);
        group *= ports + 1;
      }
      EXPECT_EQ(group, n);
    }
  }
}

TEST(AllgatherCost, GatherBroadcastIsTwoTrees) {
  for_all_sizes(algorithm::gather_broadcast, [](int n, int ports, const ExchangeCost& cost) {
    const int levels = ceil_log(n, ports);
    EXPECT_EQ(cost.steps, 2 * levels);
    // docs/algorithms.md: up, the largest subtree of a level; down, all but the smallest one.
    std::int64_t blocks = 0;
    std::int64_t level = 1;
    for (int i = 0; i < levels; ++i, level *= ports + 1) {
      const std::int64_t last = (n - 1) / level;  // the last participant of the level, if it is one
      const std::int64_t up = std::min(level, n - level);
      const std::int64_t smallest = last % (ports + 1) != 0 ? n - last * level : level;
      blocks += up + n - smallest;
    }
    EXPECT_EQ(cost.blocks_per_port, blocks);
    if (is_power(n, ports)) {
      EXPECT_EQ(blocks, static_cast<std::int64_t>(levels) * n);
    }
  });
}

TEST(AllgatherCost, DirectGatherBroadcastIsAStarAndATree) {
  for_all_sizes(algorithm::direct_gather_broadcast, [](int n, int ports, const ExchangeCost& cost) {
    const std::int64_t up = ceil_divide(n - 1, ports);
    const int levels = ceil_log(n, ports);
    EXPECT_EQ(cost.steps, up + levels);
    EXPECT_EQ(cost.blocks_per_port, up + static_cast<std::int64_t>(levels) * (n - 1));
  });
}

TEST(AllgatherCost, SchedulesCostWhatExchangesCost) {
  // With 64-byte blocks a region is 128 bytes; a put leaves no padding out, so bytes are blocks *
  // 128; one more header where the ranks of a group exchange.
  for (const algorithm::Algorithm& tested : algorithm::algorithms()) {
    for (int nodes = 1; nodes <= 20; ++nodes) {
      for (int ports = 1; ports <= 4; ++ports) {
        std::vector<int> node_of;
        for (int node = 0; node < nodes; ++node) {
          node_of.push_back(node);
        }
        const Shape shape = uniform_shape(NodeMap(node_of), 64, ports, 1);
        const Cost cost =
            cost_of(nodes, [&](int rank) { return algorithm::make_schedule(tested, shape, rank); },
                    {.startup_s = 1, .seconds_per_byte = 0.5});
        const ExchangeCost blocks = cost_of_exchange(tested.exchange, nodes, ports);
        EXPECT_EQ(cost.steps, blocks.steps) << tested.name << " " << nodes << " " << ports;
        const std::uint64_t block_bytes =
            nodes > 1 && tested.gather == Gather::Exchange ? 192 : 128;
        EXPECT_EQ(cost.bytes_per_port,
                  static_cast<std::uint64_t>(blocks.blocks_per_port) * block_bytes);
        EXPECT_DOUBLE_EQ(cost.seconds, cost.steps + 0.5 * static_cast<double>(cost.bytes_per_port));
      }
    }
  }
}

TEST(AllgatherCost, EveryBlockCrossesTheNetworkOnceWithSeveralLeaders) {
  std::vector<int> node_of;
  for (int rank = 0; rank < 24; ++rank) {
    node_of.push_back(rank / 6);
  }
  for (const std::string_view name :
       {"smp-direct", "smp-bruck", "smp-recursive-doubling", "smp-ring"}) {
    for (int leaders = 1; leaders <= 4; ++leaders) {
      const Shape shape = uniform_shape(NodeMap(node_of), 1024, 2, leaders);
      std::vector<std::uint64_t> received(4);
      for (int rank = 0; rank < 24; ++rank) {
        for (const Step& step :
             algorithm::make_schedule(*algorithm::find_algorithm(name), shape, rank).steps) {
          received[node_of[rank]] += step.kind == StepKind::Await ? step.bytes : 0;
        }
      }
      for (const std::uint64_t bytes : received) {
        EXPECT_EQ(bytes, 3 * (6 * 1024 + leaders * kHeaderBytes)) << name << " " << leaders;
      }
    }
  }
}

/// Four nodes of eight ranks with 1 KiB each, one port.
struct LiteralExchange {
  static constexpr int kNodes = 4;
  static constexpr int kNodeSize = 8;
  static constexpr std::uint64_t kBytes = 1024;

  LiteralExchange(std::string_view name, int leaders)
      : algorithm(*algorithm::find_algorithm(name)) {
    std::vector<int> node_of;
    for (int rank = 0; rank < kNodes * kNodeSize; ++rank) node_of.push_back(rank / kNodeSize);
    shape = uniform_shape(NodeMap(node_of), kBytes, 1, leaders);
  }
  int steps() const {
    const auto schedule_of = [&](int rank) {
      return algorithm::make_schedule(algorithm, shape, rank);
    };
    return cost_of(shape.ranks(), schedule_of, {}).steps;
  }
  /// What comes to a node from others.
  std::uint64_t bytes_into(int node) const {
    std::uint64_t bytes = 0;
    for (const int rank : shape.map.ranks_of[node]) {
      for (const Step& step : algorithm::make_schedule(algorithm, shape, rank).steps) {
        const bool remote = step.kind == StepKind::Await && shape.map.node_of[step.peer] != node;
        bytes += remote ? step.bytes : 0;
      }
    }
    return bytes;
  }

  const algorithm::Algorithm& algorithm;
  Shape shape;
};

// docs/algorithms.md: what the exchange of Kandalla 2009 costs beside ours.
TEST(AllgatherCost, AllLeadersExchangeWithAllInAsManyStepsAsThereAreLeaders) {
  constexpr int kNodes = LiteralExchange::kNodes;
  for (const int leaders : {1, 2, 4, 8}) {
    const int participants = kNodes * leaders;
    const auto group = static_cast<std::uint64_t>(LiteralExchange::kNodeSize / leaders);
    const std::uint64_t region = group * LiteralExchange::kBytes + kHeaderBytes;
    const LiteralExchange doubling("smp-multi-leader-recursive-doubling", leaders);
    EXPECT_EQ(doubling.steps(), ceil_log(participants, 1));
    const LiteralExchange ring("smp-multi-leader-ring", leaders);
    EXPECT_EQ(ring.steps(), participants - 1);
    for (int node = 0; node < kNodes; ++node) {
      // Every leader fetches the regions of all other nodes; in a ring the first one does for all.
      const auto others = static_cast<std::uint64_t>((kNodes - 1) * leaders);
      EXPECT_EQ(doubling.bytes_into(node), static_cast<std::uint64_t>(leaders) * others * region);
      EXPECT_EQ(ring.bytes_into(node), static_cast<std::uint64_t>(participants - 1) * region);
    }
  }
}

TEST(AllgatherCost, GroupsThatExchangeTakeTheirStepsBefore) {
  for (const int leaders : {1, 2, 4, 8}) {
    const int participants = LiteralExchange::kNodes * leaders;
    const int group = LiteralExchange::kNodeSize / leaders;
    const LiteralExchange doubling("smp-multi-leader-recursive-doubling-point-to-point", leaders);
    EXPECT_EQ(doubling.steps(), ceil_log(group, 1) + ceil_log(participants, 1));
    const LiteralExchange ring("smp-multi-leader-ring-point-to-point", leaders);
    EXPECT_EQ(ring.steps(), group - 1 + participants - 1);
    // A header more for every rank's block.
    const std::uint64_t region =
        static_cast<std::uint64_t>(group) * (LiteralExchange::kBytes + kHeaderBytes) + kHeaderBytes;
    EXPECT_EQ(ring.bytes_into(1), static_cast<std::uint64_t>(participants - 1) * region);
  }
}

}  // namespace
}  // namespace allrail::schedule::testing
