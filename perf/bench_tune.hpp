// allrail-bench tune: measures every algorithm and writes a tuning file in which the fastest win.
#pragma once

#include <vector>

#include <allrail/communicator.hpp>

#include "perf/bench_options.hpp"
#include "perf/report.hpp"

namespace allrail::perf {

/// Collective. Measures the collectives of the options with all their algorithms, and rank 0 writes
/// options.tuning_file: rules for a job of this layout (docs/tuning.md). Returns all rows.
/// @throws Error{Internal} and writes nothing where bytes were wrong, Error{ResourceLimit} where
/// the file cannot be written.
std::vector<Row> bench_tune(Communicator& communicator, const BenchOptions& options,
                            const Context& context);

}  // namespace allrail::perf
