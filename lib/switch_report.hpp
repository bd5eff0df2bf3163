// Leaf switches of a job that is only described.
#pragma once

#include <memory>
#include <vector>

#include "coll/schedule/shape.hpp"
#include "lib/diagnostics.hpp"

namespace allrail::diagnostics {

/// Null where there are no leaves.
/// @throws Error{InvalidArgument} unless every one of so many nodes hangs on one leaf.
std::shared_ptr<const schedule::Switches> imagined_switches(const std::vector<LeafInfo>& leaves,
                                                            int nodes);

}  // namespace allrail::diagnostics
