// A job of several ranks in one process, for programs that are linked with in_process_bootstrap.cpp
// in place of the launcher's library.
#pragma once

#include <functional>

namespace allrail::counts {

/// Runs `work` for every rank of a new job, each on a thread of its own on which the rank finds
/// itself by launcher::Bootstrap::start(). What it makes may be used by any thread afterwards. Ends
/// the process where a rank throws, since the others would wait for it.
void run_as_ranks(int ranks, const std::function<void(int rank)>& work);

}  // namespace allrail::counts
