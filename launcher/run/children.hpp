// Starting the processes of the ranks, and reading how they ended.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/types.h>

#include "lib/base/handle.hpp"

namespace allrail::launcher::run {

/// What all ranks have in common.
struct SpawnSettings {
  std::string path;
  std::vector<std::string> arguments;
  int janitor_fd = -1;
  int exec_error_fd = -1;  // a child that cannot run the program writes an ExecError here
  sigset_t signal_mask{};  // as the launcher found them
  rlimit open_files{};
};

struct ExecError {
  int rank;
  int error_number;
};

struct Child {
  int rank = -1;
  pid_t pid = -1;
  bool running = false;
  base::UniqueFd input;      // write end of standard input, or empty
  base::UniqueFd output[2];  // read ends of standard output and standard error
};

enum class Input { Inherit, Pipe, Null };

/// What every rank finds in its environment, beside what PMIx adds for each: the launcher's own,
/// `nodes` as ALLRAIL_NODES where that is not empty, and whether stderr is a terminal.
std::vector<std::string> common_environment(const std::string& nodes);

/// Starts one rank in a process group of its own that dies with the launcher.
Child spawn(const SpawnSettings& settings, int rank, const std::vector<std::string>& environment,
            Input input);

/// How a process ended: "exited with code 3" or "was killed by signal 11 (Segmentation fault)".
std::string describe_end(const siginfo_t& info);
/// The code that a shell would report: the exit code, or 128 + signal.
int exit_code_of(const siginfo_t& info);

}  // namespace allrail::launcher::run
