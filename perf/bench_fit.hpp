// allrail-bench fit: measures the parameters of the cost model on the running system.
#pragma once

#include <string>

#include <allrail/communicator.hpp>

#include "perf/bench_options.hpp"

namespace allrail::perf {

/// Collective. Rank 0 and `--peer` (the first rank of another node) talk, and rank 0 writes
/// options.json_file. `command` goes into it.
void bench_fit(Communicator& communicator, const BenchOptions& options, const std::string& command);

}  // namespace allrail::perf
