// The PMIx server of one job on one host: a process of its own, because a fault of the library must
// not end the job. In PMIx 4.2, a rank that dies just when a fence ends can make the library use
// memory that it has freed (the fence is then ended twice).
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "launcher/run/pmix_library.hpp"
#include "lib/base/handle.hpp"

namespace allrail::launcher::run {

class PmixServer {
 public:
  /// Forks the process and waits until it has announced a job of `ranks` ranks. All its files lie
  /// in `directory`. Throws Error{Bootstrap}. Call it before any thread exists.
  PmixServer(const std::string& job, int ranks, const std::string& directory);
  PmixServer(const PmixServer&) = delete;
  PmixServer& operator=(const PmixServer&) = delete;
  /// Ends the process: what it holds is memory of its own and files that the janitor removes.
  ~PmixServer() { end(); }

  /// `base`, and the variables by which this rank finds the server.
  std::vector<std::string> environment_of(int rank, const std::vector<std::string>& base) const;

  /// Readable when take_aborts() has something; -1 once the process has ended.
  int event_fd() const noexcept { return channel_.get(); }
  std::vector<AbortRequest> take_aborts();

  pid_t pid() const noexcept { return pid_; }
  /// Whoever waits for all children has seen the end of this one.
  void ended() noexcept { pid_ = -1; }

 private:
  void await_start(int ranks);
  void end() noexcept;

  base::UniqueFd channel_;
  pid_t pid_ = -1;
  std::vector<std::vector<std::string>> variables_;  // by rank
};

}  // namespace allrail::launcher::run
