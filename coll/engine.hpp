// Runs plans over the node segment and the fabric: starts executions, makes progress, waits, and
// turns what goes wrong into errors on every rank.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "coll/done_counts.hpp"
#include "coll/execution.hpp"
#include "coll/plan.hpp"
#include "coll/slots.hpp"
#include "coll/team.hpp"
#include "include/allrail/error.hpp"
#include "lib/base/clock.hpp"

namespace allrail::coll {

class Engine {
 public:
  /// `communicator` tells the calls of this communicator from those of others.
  Engine(const Team& team, const SlotGeometry& geometry, std::uint64_t communicator);

  /// Starts links to the ranks that a plan talks to. Nothing blocks.
  void connect(const CallPlan& plan);
  /// Runs one call to its end. Throws Error with the communicator dead: what this rank found is
  /// told to all ranks, what another rank found is thrown here.
  void run(const CallPlan& plan, const Buffers& buffers, base::Deadline deadline);
  /// Finishes what this rank still has to send; gives up when nothing moves for `patience`.
  void drain(std::chrono::milliseconds patience) noexcept;
  /// Progress without a call: acknowledgements, replays, done counts. For the helper thread.
  void idle_progress();

  /// Tells all ranks that this communicator is dead, and throws the first cause.
  [[noreturn]] void die(Code code, int peer, const std::string& text);
  /// Whether a call of this rank ended with the death of the communicator.
  bool dead() const noexcept { return dead_; }
  /// Throws Error{Aborted} if the communicator died before.
  void throw_if_dead();

 private:
  static constexpr int kMaxActive = 3;  // slices of a call under way at once: a large slot less

  void begin(const CallPlan& plan, std::uint64_t slice, const Buffers& buffers);
  /// Walks all active executions on; true when the oldest has done its steps.
  bool advance();
  void run_slices(const CallPlan& plan, const Buffers& buffers, base::Deadline deadline);
  void end_oldest(base::Deadline deadline);
  void end_call(const CallPlan& plan, base::Deadline deadline);
  template <class Ready>
  void wait(const Ready& ready, base::Deadline deadline);
  void slow_checks(base::Deadline deadline, std::int64_t since_ns);
  void check_failures();
  void check_local_ranks();
  void sleep();
  [[noreturn]] void report_mismatch(const CallMismatch& mismatch, const Call& mine);
  [[noreturn]] void throw_abort_record();
  Execution& active(int index) {
    return executions_[static_cast<std::size_t>((oldest_ + index) % kMaxActive)];
  }

  const Team& team_;
  std::uint64_t communicator_;
  DoneCounts done_counts_;
  SlotRing slots_;
  ExecutionContext context_;
  std::array<Execution, kMaxActive> executions_;
  std::array<bool, kMaxActive> steps_done_{};
  int oldest_ = 0;
  int active_count_ = 0;
  const CallPlan* running_ = nullptr;
  std::uint64_t sequence_ = 0;
  std::uint64_t stamp_ = 0;
  std::int64_t next_slow_check_ns_ = 0;
  std::int64_t next_warning_ns_ = 0;
  bool checked_ = false;  // this wait has made a slow check
  bool dead_ = false;
  std::string first_cause_;
};

}  // namespace allrail::coll
