// Times of one row of the benchmark, over iterations and ranks.
#pragma once

#include <vector>

#include <allrail/communicator.hpp>

namespace allrail::perf {

struct TimeStatistics {
  double min = 0, avg = 0, p50 = 0, p99 = 0, max = 0;  // microseconds
  double p50_slowest_rank = 0;
};

/// Sorts `samples_us` of this rank and joins them with those of all ranks: min and max are over all
/// ranks, avg and p50 the mean over ranks of each rank's own, p99 that of the worst rank.
/// Collective.
TimeStatistics join_statistics(Communicator& communicator, std::vector<double>& samples_us);

}  // namespace allrail::perf
