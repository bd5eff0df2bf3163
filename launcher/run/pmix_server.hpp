// The PMIx server of one job on one host. PMIx calls back in threads of its own; what matters to
// the launcher is handed to its loop through events() and a descriptor that becomes readable.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace allrail::launcher::run {

/// A rank asked for the end of the job.
struct AbortRequest {
  int rank;
  int exit_code;
  std::string why;
};

class PmixServer {
 public:
  /// Starts the server and announces a job of `ranks` ranks. All its files lie in `directory`.
  /// Throws Error{Bootstrap}. One per process: PMIx keeps its state in globals.
  PmixServer(const std::string& job, int ranks, const std::string& directory);
  PmixServer(const PmixServer&) = delete;
  PmixServer& operator=(const PmixServer&) = delete;
  ~PmixServer();

  /// Announces one rank and returns its environment: `base` and the variables of PMIx.
  std::vector<std::string> add_rank(int rank, const std::vector<std::string>& base);

  /// Readable when take_aborts() has something.
  int event_fd() const noexcept;
  std::vector<AbortRequest> take_aborts();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  std::string job_;
};

/// Removes the variables of an outer PMIx launcher from this process, so that the server does not
/// take itself for its client and the ranks do not see two launchers. PMIX_MCA_* stay: they are
/// settings of the user.
void forget_outer_launcher();

}  // namespace allrail::launcher::run
