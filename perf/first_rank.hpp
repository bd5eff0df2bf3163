// What rank 0 alone can find out, and all ranks have to know before they measure.
#pragma once

#include <string>

#include <allrail/communicator.hpp>

namespace allrail::perf {

/// Collective. Throws Error{InvalidArgument} on all ranks where `refusal`, that of rank 0, is not
/// empty.
void fail_together(Communicator& communicator, std::string refusal);

/// Collective, before anything is measured: rank 0 may write this file. Nothing is written yet.
/// Throws on all ranks where it may not. Empty: there is none.
void check_output(Communicator& communicator, const std::string& file);

}  // namespace allrail::perf
