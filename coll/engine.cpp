#include "coll/engine.hpp"

#include <algorithm>

#include "coll/engine_group.hpp"
#include "lib/base/error.hpp"
#include "shm/progress.hpp"

namespace allrail::coll {
namespace {

// A rank that shares its core finds what it waits for after one or two, if nobody is late.
constexpr int kWalkYields = 8;

}  // namespace

Engine::Engine(const Team& team, const SlotGeometry& geometry, std::uint64_t communicator,
               std::uint64_t registered_bytes)
    : team_(team),
      communicator_(communicator),
      done_counts_(team),
      slots_(geometry),
      context_{team, done_counts_,
               std::vector<std::uint64_t>(
                   static_cast<std::size_t>(team.roster->node_size(team.node)), 0)},
      registrations_(registered_bytes),
      executions_{Execution(context_), Execution(context_), Execution(context_)},
      core_(team.home_cpu, team.shares_cpus) {
  if (team.fabric != nullptr) talking_local_rank_ = team.roster->talking_local_rank();
}

void Engine::connect(const CallPlan& plan) {
  for (const int peer : plan.peers()) {
    if (team_.is_local(peer)) continue;
    done_counts_.meet(peer);
    if (!team_.fabric->knows(peer)) team_.fabric->connect(peer, team_.events->rails_of(peer));
  }
}

void Engine::run(const CallPlan& plan, const Buffers& buffers, base::Deadline deadline) {
  // Calls of other communicators go on in waits only, which a row of walked calls never makes.
  const bool others = team_.group != nullptr && team_.group->others_in_flight(*this);
  if (plan.is_on_node() && front_ == nullptr && !others) {
    hand_over_all();
    if (walk(plan, buffers)) return;
  } else {
    blocking_.walked.number = 0;
    blocking_.walked_steps = 0;
  }
  blocking_.plan = &plan;
  blocking_.buffers = buffers;
  blocking_.deadline = deadline;
  start(blocking_);
  if (blocking_.state != CallRun::State::Ended) {
    wait(blocking_);
  } else if (others) {
    team_.group->advance_others(*this);
  }
}

/// Between nodes a rank waits for longer than it looks.
inline shm::ShortWait Engine::wait_of_walk() {
  if (team_.fabric != nullptr) return {0, 0, core_};
  const shm::WaitPolicy& policy = team_.wait_policy;
  const bool has_core = policy.has_own_core() && !core_.is_likely();
  return {has_core ? policy.spins : 0, std::min(policy.yields, kWalkYields), core_};
}

/// Makes a call past the queue. False: it has to wait for longer than some looks and yields, or
/// ranks differ. Then blocking_ says how far it came.
bool Engine::walk(const CallPlan& plan, const Buffers& buffers) {
  SliceIdentity& identity = blocking_.walked;
  identity = next_identity(plan, buffers.place);
  last_root_ = -1;
  blocking_.walked_steps = 0;
  if (!done_counts_.my_node_is_done(identity.slot.previous_call)) return false;
  shm::ShortWait wait = wait_of_walk();
  blocking_.walked_steps =
      walk_on_node(team_, done_counts_, {plan.first(), buffers, identity}, wait);
  if (blocking_.walked_steps < plan.first().steps.size()) {
    walk_took_long_ = wait.took_long();
    return false;
  }
  ++slices_ended_;
  waiting_since_ns_ = next_warning_ns_ = 0;
  done_counts_.finished(identity.number);
  return true;
}

/// Whether nobody has to answer the call of the plan, since it is like the last one.
inline bool Engine::continues_stream(const CallPlan& plan) const {
  return plan.may_coalesce() && plan.description().root == last_root_ &&
         plan.description().operation == last_operation_;
}

/// Its number, stamp and slot, which the node is told.
inline SliceIdentity Engine::next_identity(const CallPlan& plan, std::uint64_t place) {
  SliceIdentity identity;
  identity.number = ++sequence_;
  // A difference in a call where nobody could see it shows in the next one.
  identity.stamp = history_ = mix(plan.hash() ^ communicator_ ^ history_, identity.number);
  identity.flag_stamp = place == 0 ? identity.stamp : mix(identity.stamp, place);
  identity.slot = slots_.take(plan.slot_bytes(), identity.number, plan.slot_order());
  needed_ = identity.slot.previous_call;
  shm::RankLine& line = team_.segment->line(team_.local_rank);
  // The time of entry is filled in when the wait gets long: most calls need no clock.
  shm::enter_call(line, identity.number, identity.stamp, 0);
  return identity;
}

void Engine::start(CallRun& call) {
  call.state = CallRun::State::InFlight;
  call.begun = call.ended = 0;
  call.next = nullptr;
  (front_ == nullptr ? front_ : back_->next) = &call;
  back_ = &call;
  if (to_begin_ == nullptr) to_begin_ = &call;
  guarded([this, &call] {
    if (continues_stream(*call.plan)) {
      hand_over_others();
    } else {
      hand_over_all();
    }
    advance();
  });
  if (holds()) note_held();
}

// A small call walks through each of these once: they are inline where they are used.
inline void Engine::begin_slices() {
  while (to_begin_ != nullptr && active_count_ < kMaxActive) {
    CallRun& call = *to_begin_;
    if (call.plan->zero_copy() && !has_memory(call)) return;
    begin(call);
    if (call.begun == call.plan->slices()) to_begin_ = call.next;
  }
}

/// Registers what the call names, unless an earlier start of the same plan did or no rail moves any
/// of it. False where that would be more than may be registered at once, until earlier calls have
/// ended.
bool Engine::has_memory(CallRun& call) {
  if (call.plan->peers().empty()) return true;
  if (!call.registration.held()) {
    const std::uint64_t bytes = Registration::bytes_of(call.buffers);
    if (bytes != 0 && !registrations_.make_room(bytes) && front_ != &call) return false;
    call.registration.make(*team_.fabric, registrations_, call.buffers);
  }
  call.registration.set_in_use(true);
  return true;
}

inline void Engine::begin(CallRun& run) {
  const CallPlan& plan = *run.plan;
  const std::size_t place = place_of(active_count_);
  Call& call = executions_[place].next_call();
  call.identity = run.walked.number != 0 ? run.walked : next_identity(plan, run.buffers.place);
  run.last_number = call.identity.number;
  if (run.begun == 0) {
    call.schedule = &plan.first();
  } else {
    call.keep_alive = plan.schedule(run.begun);
    call.schedule = call.keep_alive.get();
  }
  call.has_puts = !plan.peers().empty();
  const std::uint64_t offset = run.begun == 0 ? 0 : plan.slice_begin(run.begun);
  call.buffers = &run.buffers;
  call.send = run.buffers.send;
  call.receive = run.buffers.receive;
  // The root's side of a collective is null elsewhere.
  if (call.send != nullptr) call.send += offset;
  if (call.receive != nullptr) call.receive += offset;
  call.slice_offset = offset;
  call.continues_stream = continues_stream(plan);
  last_root_ = plan.description().root;
  last_operation_ = plan.description().operation;
  call.description = plan.description();
  call.pace_word = plan.description().operation == Operation::Barrier ? enter_barrier(call) : 0;
  call.window = nullptr;
  if (plan.zero_copy()) {
    const bool is_registered = run.buffers.window != nullptr;
    call.window = is_registered ? run.buffers.window : &run.registration.window();
    call.window_offset = run.buffers.window_offset;
  }

  steps_done_[place] = false;
  executions_[place].start(run.walked_steps);
  ++active_count_;
  ++run.begun;
}

/// Everything that can be done now. Slices and calls end in the order in which they were started.
void Engine::advance() {
  if (to_begin_ != nullptr) begin_slices();
  while (front_ != nullptr) {
    const bool steps_done = advance_executions();
    if (front_->ended < front_->plan->slices()) {
      Execution& oldest = active(0);
      if (!steps_done || (oldest.call().zero_copy() && !oldest.await_sent())) return;
      end_oldest();
      ++front_->ended;
    }
    const bool stays = front_->ended == front_->plan->slices() && !leave_front();
    if (to_begin_ != nullptr) begin_slices();
    if (stays) return;
  }
}

/// Walks all active executions on; true when the oldest has done its steps.
inline bool Engine::advance_executions() {
  bool in_turn = true;
  for (int i = 0; i < active_count_; ++i) {
    const std::size_t place = place_of(i);
    Execution& execution = executions_[place];
    bool& done = steps_done_[place];
    if (!done) done = execution.advance(in_turn);
    if (execution.mismatch() != nullptr) report_mismatch(*execution.mismatch(), execution.call());
    if (execution.failed_read() != nullptr) report_failed_read(*execution.failed_read());
    in_turn = in_turn && !execution.holds_the_turn();
  }
  return active_count_ > 0 && steps_done_[static_cast<std::size_t>(oldest_)];
}

inline void Engine::end_oldest() {
  Execution& execution = active(0);
  const std::uint64_t number = execution.call_number();
  if (execution.call().description.operation == Operation::Barrier) leave_barrier(execution);
  execution.finish();
  oldest_ = static_cast<int>(place_of(1));
  --active_count_;
  ++slices_ended_;
  waiting_since_ns_ = next_warning_ns_ = 0;
  done_counts_.finished(number);
}

/// Tells those of the plan's peers who may soon have to wait for a slot of this node. Whether any
/// was told.
bool Engine::tell_peers_behind(const CallPlan& plan) {
  const SlotGeometry& geometry = slots_.geometry();
  // Within a call peers need what it needs, and behind it what the next one does.
  const bool is_over = done_counts_.has_finished(sequence_);
  const DoneCounts::Behind behind =
      slots_.takes_one(plan.slot_bytes(), plan.slot_order())
          ? DoneCounts::behind_in_smallest_ring(sequence_ + is_over,
                                                is_over ? slots_.next_small_needs() : needed_)
      : plan.slot_bytes() <= geometry.most_in_small_ring() ? done_counts_.behind_in_small_ring()
                                                           : done_counts_.behind_in_large_ring();
  bool told = false;
  for (const int peer : plan.peers()) {
    if (!team_.is_local(peer)) told = done_counts_.tell_if_behind(peer, behind) || told;
  }
  return told;
}

/// Ends the oldest call, whose steps are done. False: something of it is still here.
inline bool Engine::leave_front() {
  CallRun& call = *front_;
  const CallPlan& plan = *call.plan;
  if (transport::Fabric* const fabric = team_.fabric; fabric != nullptr && !plan.peers().empty()) {
    // What lies in slot memory may be read by the rails later, but only a call makes progress for
    // sure: so it ends when everything of it has left this process.
    if (!fabric->flushed(call.last_number)) return false;
    // Peers wait for them where they put out of user memory, or have few slots to put out of.
    const bool at_once =
        plan.zero_copy() || plan.slot_bytes() > slots_.geometry().most_in_small_ring();
    if (at_once) fabric->acknowledge();
    done_counts_.refresh();
    // Those who put here without hearing of us by the way, such as a ring's other neighbour.
    if (tell_peers_behind(plan)) fabric->send_told();
  }
  if (call.registration.held()) {
    call.registration.set_in_use(false);
    if (!call.keeps_registration) call.registration.release();
  }
  shm::RankLine& line = team_.segment->line(team_.local_rank);
  if (line.entered_ns.load(std::memory_order_relaxed) != 0) {
    shm::leave_call(line);
  }
  front_ = call.next;
  call.state = CallRun::State::Ended;
  return true;
}

}  // namespace allrail::coll
