// Runs calls over the node segment and the fabric: starts executions, makes progress, waits, and
// turns what goes wrong into errors on every rank.
//
// Calls stand in a queue in the order of their start, which is the same on all ranks. Their slices
// get numbers, stamps and slots in that order, up to three are under way at once, and they end in
// that order. advance() does everything that can be done without waiting; a call that blocks is
// started and waited for, one that does not is started and tested now and then.
//   engine.cpp        the queue
//   engine_wait.cpp   waiting, and what is looked after meanwhile
//   engine_checks.cpp what is wrong if a wait takes long
//   engine_pace.cpp   what barriers spread of the rails
//   engine_errors.cpp the end of the communicator
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>

#include "coll/call_run.hpp"
#include "coll/done_counts.hpp"
#include "coll/execution.hpp"
#include "coll/pace_agreement.hpp"
#include "coll/plan.hpp"
#include "coll/slots.hpp"
#include "coll/team.hpp"
#include "include/allrail/error.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"

namespace allrail::coll {

/// Of a rank whose process has ended.
std::string died_text(int rank);

class Engine {
 public:
  /// `communicator` tells the calls of this communicator from those of others. `registered_bytes`
  /// are what may be registered of user memory with each rail at once.
  Engine(const Team& team, const SlotGeometry& geometry, std::uint64_t communicator,
         std::uint64_t registered_bytes = UINT64_MAX);

  /// Starts links to the ranks that a plan talks to. Nothing blocks.
  void connect(const CallPlan& plan);
  /// Throws Error{Aborted} if the communicator died before, or the first cause if nobody here was
  /// told yet. To be called before run() and start().
  void throw_if_dead() {
    if (dead_ || team_.segment->aborted()) throw_end();
  }
  /// Runs one call to its end, after those that were started before. Throws Error with the
  /// communicator dead: what this rank found is told to all ranks, what another rank found is
  /// thrown here.
  void run(const CallPlan& plan, const Buffers& buffers, base::Deadline deadline);

  /// Puts a call, with its plan, buffers and deadline, behind those that were started before and
  /// does what can be done without waiting. It is not InFlight. Throws as run() does.
  void start(CallRun& call);
  /// Makes progress without waiting. True once the call has Ended. Throws as run() does.
  bool test(CallRun& call);
  /// Waits for the end of the call. Throws as run() does.
  void wait(CallRun& call);
  /// Before a call is destroyed: gives it `patience` to end, then ends the communicator, and takes
  /// its memory from the rails.
  void abandon(CallRun& call, std::chrono::milliseconds patience) noexcept;

  /// Finishes what this rank still has to send; gives up when nothing moves for `patience`.
  void drain(std::chrono::milliseconds patience) noexcept;
  /// Progress while the user is elsewhere: acknowledgements, replays, done counts, and calls that
  /// were started. For the helper thread. An error is kept for the next call.
  void idle_progress();

  /// What calls that ended left in the rails leaves now. It may be that the rails do not take all
  /// of it at once.
  void hand_over();
  bool holds() const;

  /// For the other engines of this process (EngineGroup). Whether calls are started and not ended.
  bool in_flight() const noexcept { return front_ != nullptr; }
  /// What test() does, for whoever waits elsewhere. True if anything moved. An error is kept for
  /// the next call.
  bool go_on();
  /// Takes in that another rank ended this communicator.
  void notice_end();
  /// Ends because another communicator of this process has, and tells its own ranks.
  void end_with(const Team& other, const shm::AbortRecord& cause);
  const Team& team() const noexcept { return team_; }
  /// Whether that rank of my node, in the job's numbers, waits here for this rank in a call that is
  /// not begun here.
  bool is_awaited_by(int job_rank) const noexcept;

  /// Whether the rails are faster than the processors, as the barriers so far have spread it: the
  /// same on all ranks between two barriers. Unknown on one node, and before there was enough to
  /// see.
  transport::Pace agreed_pace() const noexcept { return agreed_pace_; }

  /// Tells all ranks that this communicator is dead, and throws the first cause.
  [[noreturn]] void die(Code code, int peer, std::string_view text);
  /// The same where none is left for what a call with buffers of so many bytes needs.
  [[noreturn]] void die_without_memory(Operation operation, std::uint64_t bytes);
  /// Whether a call of this rank, or the helper, ended with the death of the communicator.
  bool dead() const noexcept { return dead_; }

 private:
  static constexpr int kMaxActive = 3;  // slices under way at once: a large slot less

  // engine.cpp
  shm::ShortWait wait_of_walk();
  bool walk(const CallPlan& plan, const Buffers& buffers);
  SliceIdentity next_identity(const CallPlan& plan, std::uint64_t place);
  void begin_slices();
  bool has_memory(CallRun& call);
  void begin(CallRun& run);
  void advance();
  bool advance_executions();
  void end_oldest();
  bool leave_front();

  // engine_pace.cpp
  std::uint32_t enter_barrier(const Call& call);
  void leave_barrier(const Execution& execution);

  // engine_wait.cpp
  bool step(const CallRun* awaited);
  void wait_for(const CallRun& call);
  void note_held();
  void hand_over_all();
  void hand_over_others();
  bool continues_stream(const CallPlan& plan) const;
  bool uses_rails() const;
  bool slow_checks();
  void tell_what_is_done();
  bool tell_peers_behind(const CallPlan& plan);
  void share_progress();
  bool is_quiet() const;
  bool look();
  void note_look(bool moved);
  void check_failures();
  void sleep(bool rails, bool others);

  // engine_checks.cpp
  void check_mutual_wait();
  void check_local_ranks();
  void check_deadlines();
  void warn_if_long(std::int64_t now_ns);
  int late_rank();

  // engine_errors.cpp
  template <class Work>
  void guarded(const Work& work);
  [[noreturn]] void report_failure(const transport::FabricFailure& failure);
  [[noreturn]] void report_failed_read(const FailedRead& failed);
  [[noreturn]] void report_mismatch(const CallMismatch& mismatch, const Call& mine);
  [[noreturn]] void throw_end();
  [[noreturn]] void throw_abort_record();
  void give_up_calls();
  void await_node() const;

  /// Where the active slice with this index, from the oldest on, is kept.
  std::size_t place_of(int index) const {
    const int place = oldest_ + index;
    return static_cast<std::size_t>(place < kMaxActive ? place : place - kMaxActive);
  }
  Execution& active(int index) { return executions_[place_of(index)]; }

  const Team& team_;
  std::uint64_t communicator_;
  DoneCounts done_counts_;
  SlotRing slots_;
  ExecutionContext context_;
  RegistrationBudget registrations_;
  std::array<Execution, kMaxActive> executions_;
  std::array<bool, kMaxActive> steps_done_{};
  int oldest_ = 0;
  int active_count_ = 0;
  CallRun* front_ = nullptr;     // the oldest call that has not ended
  CallRun* back_ = nullptr;      // the newest
  CallRun* to_begin_ = nullptr;  // the first with slices that are not begun
  CallRun blocking_;             // of run()
  std::uint64_t sequence_ = 0;
  std::uint64_t needed_ = 0;  // the call that had the slot of the last one before it
  Operation last_operation_ = Operation::Barrier;  // of the slice begun last
  std::int32_t last_root_ = -1;                    // -1: none, or it was walked
  std::uint64_t slices_ended_ = 0;
  std::int64_t waiting_since_ns_ = 0;  // 0: no slow check since the last slice ended
  std::int64_t next_slow_check_ns_ = 0;
  std::int64_t next_warning_ns_ = 0;
  shm::SharedCore core_;
  bool walk_took_long_ = false;  // the last one that was not walked to its end, in its yields
  int glances_ = 0;              // looks at one link since the last look at all
  int idle_looks_ = 0;           // in a row that saw nothing
  bool checked_ = false;         // this wait has made a slow check
  bool dead_ = false;
  bool told_ = false;             // the first cause was thrown at the user
  bool keeps_errors_ = false;     // nobody has what is thrown now: the next call tells it
  bool shares_given_up_ = false;  // a call that was given up went into a NodeBuffer
  shm::AbortRecord first_cause_;
  // What is thrown where there is no memory for the first cause: made while there was some.
  Error last_word_{Code::ResourceLimit, base::kNoMemory};
  std::uint64_t barriers_ = 0;  // through the queue, as all between nodes are
  int talking_local_rank_ = 0;  // in those
  PaceAgreement pace_;          // of the rank that talks for its node in barriers
  transport::Pace agreed_pace_ = transport::Pace::Unknown;
  std::uint64_t history_ = 0;  // the stamp of the newest call, which all earlier ones went into
};

/// Something that fails here alone, such as a registration, is told to the others: they must not
/// wait for it.
template <class Work>
void Engine::guarded(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    if (dead_) throw;
    die(error.code(), error.peer(), error.what());
  } catch (const std::bad_alloc&) {
    if (front_ == nullptr) die(Code::ResourceLimit, -1, base::kNoMemory);
    const Buffers& buffers = front_->buffers;
    die_without_memory(front_->plan->description().operation,
                       buffers.send_bytes + buffers.receive_bytes);
  }
}

}  // namespace allrail::coll
