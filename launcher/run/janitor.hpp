// A small process that outlives the launcher and cleans up after it, however the launcher ends:
// it kills what is left of the ranks, and removes the session directory and the names in /dev/shm
// that ranks were killed with. It waits for the end of a pipe, so even SIGKILL of the launcher
// wakes it. On an ordinary end the launcher waits for it, so there is one way of cleaning, and
// every run exercises it.
#pragma once

#include <string>

#include <sys/types.h>

#include "lib/base/handle.hpp"

namespace allrail::launcher::run {

class Janitor {
 public:
  /// Forks. Call it before any thread exists.
  Janitor(const std::string& session_directory, const std::string& job);
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;
  /// Tells the janitor to clean now and waits until it has, for some seconds at most.
  ~Janitor() { finish(); }
  void finish() noexcept;

  /// The pipe on which a rank reports itself before it runs the program, see report().
  int pipe_fd() const noexcept { return pipe_.get(); }
  pid_t pid() const noexcept { return pid_; }
  /// Notes the process group of a rank: `pid` when it starts, `-pid` once all of it is gone.
  /// One write, safe after fork.
  static void report(int pipe_fd, pid_t pid) noexcept;

 private:
  std::string directory_;
  std::string job_;
  base::UniqueFd pipe_;
  pid_t pid_ = -1;
};

}  // namespace allrail::launcher::run
