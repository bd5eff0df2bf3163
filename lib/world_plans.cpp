// Plans of the public API: made, started, tested, dropped.
#include <cstring>
#include <functional>
#include <utility>

#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "lib/world.hpp"

namespace allrail {
namespace {

// What a plan that runs is given to end when it, or its communicator, is destroyed.
constexpr std::chrono::milliseconds kPatience{1000};

}  // namespace

std::shared_ptr<UserPlan> World::plan_allgather(std::span<const std::byte> send,
                                                std::span<std::byte> receive,
                                                const CallOptions& options) {
  return enter(coll::Operation::Allgather, send.size() + receive.size(), [&] {
    const PlanKey key = allgather_key(send, receive, options);
    return make_user_plan(key, buffers_of(send, receive, key), options);
  });
}

std::shared_ptr<UserPlan> World::plan_allgatherv(std::span<const std::byte> send,
                                                 std::span<std::byte> receive,
                                                 std::span<const std::size_t> counts,
                                                 std::span<const std::size_t> displacements,
                                                 std::size_t element_bytes,
                                                 const CallOptions& options) {
  return enter(coll::Operation::Allgatherv, send.size() + receive.size(), [&] {
    const PlanKey key =
        allgatherv_key(send, receive, counts, displacements, element_bytes, options);
    return make_user_plan(key, buffers_of(send, receive, key), options);
  });
}

std::shared_ptr<UserPlan> World::plan_barrier(const CallOptions& options) {
  return enter(coll::Operation::PlannedBarrier, 0, [&] {
    PlanKey key;
    key.operation = coll::Operation::PlannedBarrier;
    return make_user_plan(make_connected_plan(key, options), {}, options);
  });
}

/// Ranks may make a plan at different times, and start it when others make the same call without
/// one: so what is known of the rails counts when it is started.
std::shared_ptr<UserPlan> World::make_user_plan(const PlanKey& key, const coll::Buffers& buffers,
                                                const CallOptions& options) {
  const coll::PlanRequest request = request_of(key);
  using transport::Pace;
  auto plan =
      make_user_plan(make_connected_plan(request, options, Pace::Unknown), buffers, options);
  const auto usual = choose(request, options, Pace::Unknown);
  // A straight alltoall may be copied where rails are slow.
  const bool may_be_copied =
      request.operation == coll::Operation::Alltoall && plan->plan->zero_copy();
  for (const Pace pace : {Pace::Slow, Pace::Fast}) {
    const bool is_same = choose(request, options, pace).algorithm == usual.algorithm;
    if (is_same && !(may_be_copied && pace == Pace::Slow)) continue;
    // Its peers are met when it is started for the first time, if ever.
    auto& other = plan->at_pace[static_cast<std::size_t>(pace)];
    other = make_plan(request, options, pace);
    if (other->hash() == plan->plan->hash()) {
      other.reset();
      continue;
    }
    other->keep_all_slices();
  }
  return plan;
}

std::shared_ptr<UserPlan> World::make_user_plan(std::unique_ptr<coll::CallPlan> call_plan,
                                                const coll::Buffers& buffers,
                                                const CallOptions& options) {
  auto plan = std::make_shared<UserPlan>();
  plan->world = this;
  plan->plan = std::move(call_plan);
  plan->plan->keep_all_slices();
  plan->timeout = options.timeout.count() > 0 ? options.timeout : options_.timeout;
  plan->run.plan = plan->plan.get();
  plan->run.buffers = buffers;
  plan->run.keeps_registration = true;
  user_plans_.push_back(plan);
  return plan;
}

void World::start(UserPlan& plan) {
  const EntryGuard guard(job_->gate);
  engine_->throw_if_dead();
  if (plan.buffer_is_gone || plan.running) or_die(plan, [&] { reject_start(plan); });
  if (!plan.sent_copy.empty()) {
    std::memcpy(plan.sent_copy.data(), plan.run.buffers.receive, plan.sent_copy.size());
  }
  plan.started = plan.running = true;
  plan.run.deadline = deadline_of(plan.timeout);
  follow_pace(plan);
  engine_->start(plan.run);
}

void World::reject_start(const UserPlan& plan) {
  reject(plan.buffer_is_gone
             ? "a plan was started whose Buffer was destroyed: a Buffer must outlive its plans"
             : "a plan was started that runs: test() must be true, or wait() return, before");
}

void World::follow_pace(UserPlan& plan) {
  const auto& other = plan.at_pace[static_cast<std::size_t>(pace())];
  const coll::CallPlan* const chosen = (other != nullptr ? other : plan.plan).get();
  if (std::exchange(plan.run.plan, chosen) == chosen) return;
  or_die(plan, [this, chosen] {
    try {
      engine_->connect(*chosen);
    } catch (const Error& error) {
      engine_->die(error.code(), error.peer(), error.what());
    }
  });
}

bool World::test(UserPlan& plan) {
  const EntryGuard guard(job_->gate);
  check_started(plan);
  if (plan.running && engine_->test(plan.run)) plan.running = false;
  return !plan.running;
}

void World::wait(UserPlan& plan) {
  const EntryGuard guard(job_->gate);
  check_started(plan);
  if (plan.running) engine_->wait(plan.run);
  plan.running = false;
}

void World::check_started(const UserPlan& plan) {
  if (!plan.started) {
    base::fail(Code::InvalidArgument, "a plan was to be tested or waited for and never started");
  }
}

void World::drop(UserPlan& plan) noexcept {
  if (!job_->gate.enter()) {
    // Another thread is in a call, which is a mistake: its call may need this plan to go on. So the
    // plan lives until the communicator ends, and the communicator ends now if the plan runs.
    base::log_error("a plan was destroyed while another thread uses Allrail");
    if (plan.running) {
      segment_.set_abort(static_cast<int>(Code::Aborted), team_.rank,
                         "a plan was destroyed while it ran and another thread used Allrail");
      abort_set();
    }
    return;
  }
  job_->engines.hand_over();
  engine_->abandon(plan.run, kPatience);
  std::erase_if(user_plans_, [&plan](const auto& one) { return one.get() == &plan; });
  job_->gate.leave();
}

void World::let_go(std::span<const std::byte> memory) noexcept {
  const auto is_inside = [memory](const std::byte* data) {
    const std::less<> before;
    return !before(data, memory.data()) && before(data, memory.data() + memory.size());
  };
  for (const auto& plan : user_plans_) {
    if (!is_inside(plan->run.buffers.send) && !is_inside(plan->run.buffers.receive)) continue;
    engine_->abandon(plan->run, kPatience);
    plan->buffer_is_gone = true;
  }
}

void World::drop_all_plans() noexcept {
  for (const auto& plan : user_plans_) {
    engine_->abandon(plan->run, kPatience);
    plan->world = nullptr;
  }
  user_plans_.clear();
}

}  // namespace allrail
