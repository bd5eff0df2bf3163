// The PMIx client of this process: it learns rank and size, exchanges one blob per rank at
// start-up, and says goodbye. Nothing after start-up depends on it.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace allrail::launcher {

class Bootstrap {
 public:
  /// Connects to the launcher of this process; `timeout` bounds this and every later call to PMIx,
  /// each by itself. Without any launcher (no PMIX_NAMESPACE, PMIX_RANK or PMIX_SERVER_URI*) this
  /// is a job of one rank. Throws Error{Bootstrap}, or Error{Timeout} when the launcher is silent.
  static Bootstrap start(std::chrono::milliseconds timeout);

  Bootstrap(Bootstrap&& other) noexcept;
  Bootstrap& operator=(Bootstrap&& other) noexcept;
  /// Leaves the job (PMIx_Finalize). Never throws and never takes longer than a few seconds.
  ~Bootstrap();

  int rank() const noexcept;
  int size() const noexcept;
  /// The PMIx namespace; "singleton" without a launcher.
  const std::string& job_name() const noexcept;
  bool has_launcher() const noexcept;
  /// The ranks on this host in ascending order, or empty when the launcher does not tell.
  std::vector<int> local_ranks() const;
  /// The fabric switch that this process's first device is connected to, where the launcher has
  /// told it at its start (PMIX_SWITCH_PEERS); else empty. Asks nobody.
  std::string leaf_switch() const;

  /// Collective: publishes `mine` and returns the blobs of all ranks, by rank. Any size, also zero.
  /// When it returns, or throws for what a rank has published, every rank has all blobs: this one
  /// may leave.
  std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> mine);

  /// Collective: returns when every rank has called it.
  void fence();

  /// Asks the launcher to end the whole job with `exit_code`. Returns (also when there is no
  /// launcher, or it does not answer); the caller ends its own process.
  void abort(int exit_code, const std::string& why) noexcept;

 private:
  struct State;
  explicit Bootstrap(std::unique_ptr<State> state) noexcept;
  void leave() noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace allrail::launcher
