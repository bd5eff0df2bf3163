// Measures notified puts between one pair of ranks: latency, and bandwidth one and both ways.
#pragma once

#include <allrail/communicator.hpp>

#include "perf/bench_options.hpp"

namespace allrail::perf {

/// Collective. Rank 0 and `--peer` (the first rank of another node) talk; the others wait.
void bench_put(Communicator& communicator, const BenchOptions& options);

}  // namespace allrail::perf
