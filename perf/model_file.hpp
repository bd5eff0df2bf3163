// The cost model's parameters as a JSON file: what `allrail-bench fit` writes and `allrail-info`
// reads.
#pragma once

#include <string>

#include "lib/simulation.hpp"

namespace allrail::perf {

/// One object whose members have the names of CostModel's; members that are missing keep their
/// defaults, "context" may hold anything. @throws Error{InvalidArgument} naming the file and what
/// is wrong, also for a member that no model has.
diagnostics::CostModel read_model(const std::string& file);

/// `context` says where the figures are from. @throws Error{InvalidArgument} where it cannot write.
void write_model(const std::string& file, const diagnostics::CostModel& model,
                 const std::string& context);

}  // namespace allrail::perf
