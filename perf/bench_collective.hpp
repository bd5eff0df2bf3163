// Measures a collective: one row per size and algorithm.
#pragma once

#include <vector>

#include <allrail/communicator.hpp>

#include "perf/bench_options.hpp"
#include "perf/report.hpp"

namespace allrail::perf {

/// Collective. Prints rows as they are done (rank 0) and returns them.
std::vector<Row> bench_collective(Communicator& communicator, const BenchOptions& options,
                                  const Context& context);

}  // namespace allrail::perf
