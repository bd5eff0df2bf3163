// What the server process does with the PMIx library: it announces one job on one host, and answers
// what its ranks ask for. The library keeps its state in globals and has threads of its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace allrail::launcher::run {

/// A rank asked for the end of the job.
struct AbortRequest {
  int rank;
  int exit_code;
  std::string why;
};
using AbortHook = std::function<void(const AbortRequest&)>;  // called in threads of PMIx

/// Starts the library and announces a job of `ranks` ranks, once per process. All its files lie in
/// `directory`. Throws Error{Bootstrap}.
void start_pmix_library(const std::string& job, int ranks, const std::string& directory,
                        AbortHook abort_hook);

/// Announces one rank and returns the variables, each as NAME=VALUE, by which it finds the server.
/// Throws Error{Bootstrap}.
std::vector<std::string> announce_rank(const std::string& job, int rank);

/// Removes the variables of an outer PMIx launcher from this process, so that the server does not
/// take itself for its client and the ranks do not see two launchers. PMIX_MCA_* stay: they are
/// settings of the user.
void forget_outer_launcher();

}  // namespace allrail::launcher::run
