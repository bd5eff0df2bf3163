// What an execution waits for, and whether it has come.
#include "coll/execution.hpp"
#include "shm/once.hpp"

namespace allrail::coll {

using schedule::Step;
using schedule::StepKind;

int Execution::awaited_rank() const {
  if (!slot_is_free_ || next_step_ >= call_.schedule->steps.size()) return -1;
  const Step& step = call_.schedule->steps[next_step_];
  switch (step.kind) {
    case StepKind::Put:
    case StepKind::Await:
      return step.peer;
    case StepKind::AwaitLocal:
      return team_.roster->rank_of_local(step.peer);
    case StepKind::Once: {
      const int local =
          shm::once_claimer(team_.segment->once(call_.identity.slot.number), call_.identity.number);
      return local < 0 ? -1 : team_.roster->rank_of_local(local);
    }
    case StepKind::AwaitSent:
      for (const UserPut& put : user_puts_) {
        if (!team_.fabric->completed(put.peer, put.number)) return put.peer;
      }
      return -1;
    default:
      return -1;
  }
}

const Step* Execution::awaited_put() const {
  if (!slot_is_free_ || next_step_ >= call_.schedule->steps.size()) return nullptr;
  const Step& step = call_.schedule->steps[next_step_];
  return step.kind == StepKind::Await && !team_.is_local(step.peer) ? &step : nullptr;
}

bool Execution::await_sent() {
  if (user_memory_free()) return true;
  if (!told_what_arrived_) team_.fabric->acknowledge();
  told_what_arrived_ = true;
  return false;
}

bool Execution::user_memory_free() const {
  for (const UserPut& put : user_puts_) {
    if (!team_.fabric->completed(put.peer, put.number)) return false;
  }
  return true;
}

bool Execution::awaits_node() const {
  // Puts of this rank that are not acknowledged hold its slot as well: their news comes by rail.
  if (!slot_is_free_) return context_.done_counts.mine() >= call_.identity.slot.previous_call;
  if (next_step_ >= call_.schedule->steps.size()) return false;
  const Step& step = call_.schedule->steps[next_step_];
  return step.kind == StepKind::AwaitLocal || step.kind == StepKind::Once ||
         (step.kind == StepKind::Await && team_.is_local(step.peer));
}

bool Execution::node_is_ready() const {
  if (!slot_is_free_)
    return context_.done_counts.my_node_is_done(call_.identity.slot.previous_call);
  if (next_step_ >= call_.schedule->steps.size()) return true;
  const Step& step = call_.schedule->steps[next_step_];
  if (step.kind == StepKind::AwaitLocal) {
    return shm::reached(team_.segment->flag(call_.identity.slot.number, step.peer),
                        shm::flag_value(call_.identity.number, step.stage));
  }
  if (step.kind == StepKind::Once) {
    return shm::once_claimer(team_.segment->once(call_.identity.slot.number),
                             call_.identity.number) < 0;
  }
  if (step.kind != StepKind::Await || !team_.is_local(step.peer)) return true;
  const auto& counter = team_.segment->local_puts(team_.local_rank_of(step.peer), team_.local_rank);
  return next_await_ < announced_ &&
         counter.load(std::memory_order_acquire) >= await_numbers_[next_await_];
}

}  // namespace allrail::coll
