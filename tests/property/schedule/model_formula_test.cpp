#include <gtest/gtest.h>

#include "coll/allgather/allgather.hpp"
#include "coll/alltoall/alltoall.hpp"
#include "coll/barrier/barrier.hpp"
#include "coll/broadcast/broadcast.hpp"
#include "coll/gather/gather.hpp"
#include "coll/scatter/scatter.hpp"
#include "coll/schedule/simulate.hpp"
#include "tests/property/effort.hpp"

// Under Hockney's model with k ports and nothing else the time of the flat algorithms, evaluated by
// events, is what docs/algorithms.md and the papers say in closed form. The data travels with
// headers: a block of 64 bytes is 128 long on its way.
namespace allrail::schedule::testing {
namespace {

constexpr int kSizes = 66;
constexpr int kPorts = 4;
constexpr std::uint64_t kBlock = 64;
constexpr double kStartup = 3;
constexpr double kByte = 0.5;
constexpr double kRegion = (kBlock + kHeaderBytes) * kByte;

int ceil_divide(int a, int b) { return (a + b - 1) / b; }

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

NodeMap alone(int ranks) {
  std::vector<int> node_of;
  for (int rank = 0; rank < ranks; ++rank) node_of.push_back(rank);
  return NodeMap(node_of);
}

template <class Check>
void for_all_sizes(const Check& check) {
  property::Sample sample;
  for (int n = 2; n <= kSizes; ++n) {
    for (int ports = 1; ports <= kPorts; ++ports) {
      if (!sample.takes_next()) continue;
      SCOPED_TRACE("n = " + std::to_string(n) + ", k = " + std::to_string(ports));
      check(n, ports);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

/// `make(shape, rank)` is a schedule.
template <class Make>
double time_of(int n, int ports, std::uint64_t bytes, const Make& make) {
  const Shape shape = uniform_shape(alone(n), bytes, ports, 1);
  return simulate(
             shape.map, [&](int rank) { return make(shape, rank); },
             hockney_model({kStartup, kByte}, ports), -1)
      .seconds;
}

double allgather_time(std::string_view name, int n, int ports) {
  const auto& algorithm = *coll::allgather::find_algorithm(name);
  return time_of(n, ports, kBlock, [&](const Shape& shape, int rank) {
    return coll::allgather::make_schedule(algorithm, shape, rank);
  });
}

TEST(ModelFormula, AllgathersOverRanks) {
  for_all_sizes([](int n, int ports) {
    const int each = ceil_divide(n - 1, ports);
    const int steps = ceil_log(n, ports);
    EXPECT_DOUBLE_EQ(allgather_time("direct", n, ports), each * (kStartup + kRegion));
    EXPECT_DOUBLE_EQ(allgather_time("ring", n, ports), each * (kStartup + kRegion));
    EXPECT_DOUBLE_EQ(allgather_time("bruck", n, ports), steps * kStartup + each * kRegion);
    EXPECT_DOUBLE_EQ(allgather_time("recursive-doubling", n, ports),
                     steps * kStartup + each * kRegion);
  });
}

TEST(ModelFormula, AllgatherByTwoTreesAtPowers) {
  for_all_sizes([](int n, int ports) {
    const int steps = ceil_log(n, ports);
    const double time = allgather_time("smp-gather-broadcast", n, ports);
    if (is_power(n, ports)) {
      EXPECT_DOUBLE_EQ(time, 2 * steps * kStartup + steps * n * kRegion);
    }
  });
}

TEST(ModelFormula, GathersAndScatters) {
  for_all_sizes([](int n, int ports) {
    for (const int root : {0, n / 2}) {
      const double star = ceil_divide(n - 1, ports) * (kStartup + kRegion);
      const auto gather = [&](const char* name) {
        return time_of(n, ports, kBlock, [&](const Shape& shape, int rank) {
          return coll::gather::make_schedule(*coll::gather::find_algorithm(name), shape, root,
                                             rank);
        });
      };
      const auto scatter = [&](const char* name) {
        return time_of(n, ports, kBlock, [&](const Shape& shape, int rank) {
          return coll::scatter::make_schedule(*coll::scatter::find_algorithm(name), shape, root,
                                              rank);
        });
      };
      EXPECT_DOUBLE_EQ(gather("direct"), star);
      EXPECT_DOUBLE_EQ(scatter("direct"), star);
      // Cut-off subtrees are smaller than the formula counts, and nobody waits for a round.
      const ExchangeCost tree = cost_of_exchange(coll::gather::binomial, n, ports);
      const double rounds =
          tree.steps * kStartup + static_cast<double>(tree.blocks_per_port) * kRegion;
      EXPECT_LE(gather("binomial"), rounds);
      EXPECT_LE(scatter("binomial"), rounds);
      if (!is_power(n, ports)) continue;
      const double formula = ceil_log(n, ports) * kStartup + (n - 1) / ports * kRegion;
      EXPECT_DOUBLE_EQ(gather("binomial"), formula);
      EXPECT_DOUBLE_EQ(scatter("binomial"), formula);
    }
  });
}

TEST(ModelFormula, Broadcasts) {
  constexpr std::uint64_t kPiece = 16ULL * 1024;  // of the chain, as it is told
  constexpr int kPieces = 5;
  for_all_sizes([](int n, int ports) {
    const auto time = [&](const char* name, std::uint64_t bytes) {
      return time_of(n, ports, bytes, [&](const Shape& given, int rank) {
        Shape shape = given;
        shape.segment_bytes = kPiece;
        return coll::broadcast::make_schedule(*coll::broadcast::find_algorithm(name), shape, n - 1,
                                              rank);
      });
    };
    EXPECT_DOUBLE_EQ(time("binomial", kBlock), ceil_log(n, ports) * (kStartup + kRegion));
    EXPECT_DOUBLE_EQ(time("chain", kPieces * kPiece),
                     (kPieces + n - 2) * (kStartup + (kPiece + kHeaderBytes) * kByte));
    // A piece of one block for everybody: the root's first port carries a piece in every step.
    EXPECT_DOUBLE_EQ(time("scatter-allgather", static_cast<std::uint64_t>(n) * kBlock),
                     (ceil_divide(n - 1, ports) + n - 1) * (kStartup + kRegion));
  });
}

TEST(ModelFormula, Alltoalls) {
  for_all_sizes([](int n, int ports) {
    const auto time = [&](const char* name) {
      return time_of(n, ports, kBlock, [&](const Shape& shape, int rank) {
        PairShape pairs;
        pairs.map = shape.map;
        pairs.ports = ports;
        pairs.uniform_bytes = kBlock;
        pairs.send_offsets = pairs.receive_offsets = shape.receive_offsets;
        pairs.without_places = true;
        return coll::alltoall::make_schedule(*coll::alltoall::find_algorithm(name), pairs, rank);
      });
    };
    EXPECT_DOUBLE_EQ(time("direct"), ceil_divide(n - 1, ports) * (kStartup + kRegion));
    if (!is_power(n, ports)) return;
    const auto blocks = static_cast<std::uint64_t>(n / (ports + 1));
    const double travelling = static_cast<double>(blocks * kBlock + kHeaderBytes) * kByte;
    EXPECT_DOUBLE_EQ(time("bruck"), ceil_log(n, ports) * (kStartup + travelling));
    EXPECT_DOUBLE_EQ(time("recursive-doubling"), ceil_log(n, ports) * (kStartup + travelling));
  });
}

TEST(ModelFormula, Barriers) {
  for_all_sizes([](int n, int ports) {
    const double time = time_of(n, ports, 0, [&](const Shape& shape, int rank) {
      return coll::barrier::make_schedule(shape, ports, rank);
    });
    // A signal is a header and nothing else.
    EXPECT_DOUBLE_EQ(time, ceil_log(n, ports) * (kStartup + kHeaderBytes * kByte));
  });
}

}  // namespace
}  // namespace allrail::schedule::testing
