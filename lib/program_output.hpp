// What another program says, bounded in time.
#pragma once

#include <string>
#include <vector>

#include "lib/base/clock.hpp"

namespace allrail {

struct ProgramOutput {
  std::string text;
  std::string problem;  // why there is none, half a sentence; empty: the program has succeeded
};

/// Runs `command`, looked for in PATH unless it has a slash, and reads its standard output. Its
/// standard input and error output are empty. At the deadline it is killed. Never throws for what
/// the program does.
ProgramOutput output_of(const std::vector<std::string>& command, base::Deadline deadline);

}  // namespace allrail
