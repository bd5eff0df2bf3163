// The cost model in a tuning file.
#pragma once

#include "lib/json_lines.hpp"
#include "lib/simulation.hpp"

namespace allrail {

/// An object with the parameters of a model, as `allrail-bench fit --json` writes it; what is left
/// out keeps its default, and "context" is a text that nobody looks at.
/// @throws Error{BadConfiguration} with the line of what no model has or can be.
diagnostics::CostModel read_cost_model(const JsonValue& value, const TextOrigin& origin);

}  // namespace allrail
