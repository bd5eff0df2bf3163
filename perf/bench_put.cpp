#include "perf/bench_put.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/base/parse.hpp"
#include "lib/diagnostics.hpp"
#include "perf/fit_model.hpp"
#include "perf/progress.hpp"

namespace allrail::perf {
namespace {

constexpr int kPutsInFlight = 16;  // puts queued at once when bandwidth is measured

/// Of one row: puts of one size over one rail, or (-1) over all.
struct PutMeasurement {
  diagnostics::PutPair& pair;
  bool first;  // rank 0 of the pair
  int rail;
  std::uint64_t bytes;
  int iterations;
  Progress& progress;

  /// Half of each round trip in microseconds, as the first rank sees it. perftest's ib_write_lat
  /// takes its figures so, and its "typical" one is the median.
  std::vector<double> half_round_trips_us(int rounds) {
    std::vector<double> samples;
    samples.reserve(static_cast<std::size_t>(rounds));
    for (int round = 0; round < rounds; ++round) {
      const std::int64_t begin = base::now_ns();
      if (first) pair.put(bytes, rail);
      pair.await(bytes);
      if (!first) pair.put(bytes, rail);
      samples.push_back(static_cast<double>(base::now_ns() - begin) * 1e-3 / 2);
      progress.calls(round + 1, rounds);
    }
    pair.flush();
    return samples;
  }

  /// MB/s of what one rank sends; `sends` and `receives` say in which direction bytes go.
  double bandwidth_MBps(bool sends, bool receives) {
    const std::int64_t begin = base::now_ns();
    for (int done = 0; done < iterations; done += kPutsInFlight) {
      const int now = std::min(kPutsInFlight, iterations - done);
      for (int i = 0; sends && i < now; ++i) pair.put(bytes, rail);
      for (int i = 0; receives && i < now; ++i) pair.await(bytes);
    }
    if (sends) pair.flush();
    // One small put back ends the measurement on both sides.
    if (receives) pair.put(1, -1);
    if (sends) pair.await(1);
    pair.flush();
    const double seconds = static_cast<double>(base::now_ns() - begin) * 1e-9;
    return static_cast<double>(bytes) * iterations / seconds / 1e6;
  }

  /// Counts on the first rank.
  PutRow run(const std::string& rail_name, int peer) {
    half_round_trips_us(std::min(iterations, 20));
    const std::vector<double> latency_us = half_round_trips_us(iterations);
    const double one_way = bandwidth_MBps(first, !first);
    const double both_ways = bandwidth_MBps(true, true);
    progress.end_row();
    PutRow row;
    row.rail = rail_name;
    row.peer = peer;
    row.bytes = bytes;
    row.iterations = iterations;
    row.latency_us = median(latency_us);
    row.average_us = std::reduce(latency_us.begin(), latency_us.end()) / iterations;
    row.one_way_MBps = one_way;
    row.both_ways_MBps = 2 * both_ways;
    return row;
  }
};

}  // namespace

int rank_of_other_node(const Communicator& communicator, const BenchOptions& options) {
  if (options.peer >= communicator.size() || options.peer == 0) {
    base::fail(Code::InvalidArgument, "--peer {} is no other rank of this job of {}", options.peer,
               communicator.size());
  }
  const auto job = diagnostics::describe_job(communicator);
  const auto found = std::ranges::find_if(job.node_of, [&](int node) { return node != 0; });
  if (found == job.node_of.end()) {
    base::fail(Code::InvalidArgument,
               "puts are measured between nodes; start with at least two, such as "
               "allrail-run -n 2 --nodes 2");
  }
  const auto other = static_cast<int>(found - job.node_of.begin());
  if (options.peer < 0) return other;
  if (job.node_of[static_cast<std::size_t>(options.peer)] == 0) {
    base::fail(Code::InvalidArgument,
               "--peer {} is on the node of rank 0, and puts are measured between nodes; take one "
               "of another node, such as {}",
               options.peer, other);
  }
  return options.peer;
}

std::vector<PutRow> bench_put(Communicator& communicator, const BenchOptions& options) {
  const int other = rank_of_other_node(communicator, options);
  const bool first = communicator.rank() == 0;
  const auto job = diagnostics::describe_job(communicator);
  std::vector<PutRow> rows;
  communicator.barrier();
  if (first || communicator.rank() == other) {
    const std::uint64_t largest = *std::ranges::max_element(options.sizes);
    diagnostics::PutPair pair(communicator, first ? other : 0, std::max<std::uint64_t>(largest, 1));
    if (first) print_put_header(other, job.rails);
    std::vector<int> rails = pair.rails();
    rails.push_back(-1);
    Progress progress(first, options.sizes.size() * rails.size());
    for (const std::uint64_t size : options.sizes) {
      const std::uint64_t bytes = std::max<std::uint64_t>(size, 1);
      const int iterations =
          options.iterations > 0
              ? options.iterations
              : static_cast<int>(std::clamp<std::uint64_t>((64 << 20) / bytes, 32, 2000));
      for (const int rail : rails) {
        const std::string name =
            rail < 0 ? "striped" : job.rail_names[0][static_cast<std::size_t>(rail)];
        progress.begin_row(fmt::format("put of {} bytes, {}", base::format_bytes(bytes), name));
        PutMeasurement measurement{pair, first, rail, bytes, iterations, progress};
        const PutRow row = measurement.run(name, other);
        if (!first) continue;
        print_put_row(row);
        rows.push_back(row);
      }
    }
  }
  communicator.barrier();
  return rows;
}

}  // namespace allrail::perf
