// Measures notified puts between one pair of ranks: latency, and bandwidth one and both ways.
#pragma once

#include <vector>

#include <allrail/communicator.hpp>

#include "perf/bench_options.hpp"
#include "perf/report.hpp"

namespace allrail::perf {

/// Collective. Rank 0 and `--peer` (the first rank of another node) talk; the others wait. Prints
/// the rows on rank 0 and returns them there.
std::vector<PutRow> bench_put(Communicator& communicator, const BenchOptions& options);

/// `--peer`, or the first rank of another node than rank 0's. @throws Error{InvalidArgument} where
/// there is none.
int rank_of_other_node(const Communicator& communicator, const BenchOptions& options);

}  // namespace allrail::perf
