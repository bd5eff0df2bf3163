// One job: its ranks, their output, and the one loop that decides when it ends and how.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/run/children.hpp"
#include "launcher/run/input.hpp"
#include "launcher/run/options.hpp"
#include "launcher/run/output.hpp"
#include "launcher/run/pmix_server.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/handle.hpp"

namespace allrail::launcher::run {

/// What the launcher found when it started, to be restored in the ranks.
struct Inherited {
  sigset_t signal_mask{};
  rlimit open_files{};
};

class Job {
 public:
  Job(const Options& options, PmixServer& server, Sinks& sinks, int janitor_fd);
  /// Starts the ranks and returns when all have ended and their output is written: the exit code.
  int run(const std::string& path, const Inherited& inherited);

 private:
  struct Rank {
    Child child;
    std::vector<LineCutter> lines;  // standard output, standard error
  };

  /// An end that may be a reaction to another rank's death, kept until the blame is clear.
  struct Suspect {
    int exit_code;
    std::string message;
    bool confirmed = true;  // false: the PMIx server, which harms nobody if all ranks end well
  };

  void start_ranks(const std::string& path, const Inherited& inherited);
  void wait_for_events();
  void dispatch(int fd, bool readable);
  void on_signals();
  void on_forwarded_signal(int signal_number);
  void on_aborts();
  void on_exec_errors();
  void on_children();
  void on_rank_end(Rank& rank, const siginfo_t& info);
  void on_server_end(const siginfo_t& info);
  void read_output(Rank& rank, int stream);
  void check_clocks();
  void close_streams();
  /// Ends the job, at once or after a short wait for a rank whose end is clearly no reaction.
  void blame(int exit_code, const std::string& message, bool may_be_reaction);
  /// The first cause wins: its message is printed and its exit code returned.
  void end_job(int exit_code, const std::string& message, bool ask_first = true);
  void signal_ranks(int signal_number) const;
  void suspend();
  void kill_now();
  bool finished() const;
  int wait_ms() const;
  Rank* find(pid_t pid);

  const Options& options_;
  PmixServer& server_;
  Sinks& sinks_;
  int janitor_fd_;
  base::UniqueFd signals_;
  base::UniqueFd exec_errors_;
  base::UniqueFd exec_errors_write_;
  std::vector<Rank> ranks_;
  TerminalInput terminal_;
  int running_ = 0;
  int exit_code_ = 0;
  bool failed_ = false;
  bool interrupted_ = false;
  std::optional<Suspect> suspect_;
  base::Deadline blame_deadline_ = base::Deadline::never();
  base::Deadline job_deadline_ = base::Deadline::never();
  base::Deadline kill_deadline_ = base::Deadline::never();
  // From the end of the last rank: how long its streams may stay open, and, when the job failed,
  // how long the reader of the output may take.
  base::Deadline streams_deadline_ = base::Deadline::never();
  base::Deadline output_deadline_ = base::Deadline::never();
};

/// The signals that the launcher's loop takes, without those that end jobs and were to be ignored
/// when it was started; to be blocked before any thread starts.
sigset_t handled_signals();

}  // namespace allrail::launcher::run
