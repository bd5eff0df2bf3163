// The leaf switches of a job, in allrail-info.
#pragma once

#include <string>
#include <vector>

#include <allrail/communicator.hpp>

#include "lib/diagnostics.hpp"

namespace allrail::perf {

void print_switches(const Communicator& communicator);
/// From the leaf switch of every node, such as 0,0,1,1; empty: none is known.
/// @throws Error{InvalidArgument} for another text.
std::vector<diagnostics::LeafInfo> imagined_leaves(const std::string& text);

}  // namespace allrail::perf
