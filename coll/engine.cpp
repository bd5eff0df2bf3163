#include "coll/engine.hpp"

#include "coll/allgather/allgather.hpp"
#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "shm/progress.hpp"

namespace allrail::coll {
namespace {

constexpr std::int64_t kSlowCheckNs = 500'000;
constexpr std::int64_t kWarnAfterNs = 30'000'000'000;
// A leader that sleeps on its rails cannot be woken by ranks of its node, so it looks this often.
constexpr int kRailSleepMs = 20;
// Looking at rails is a system call, after which a yield is cheap; then it is time to sleep.
constexpr shm::WaitPolicy kRailWait{0, 100};
// Bytes of a put from which the peer may wait for its acknowledgement.
constexpr std::uint64_t kAcknowledgeAtOnceBytes = 16ULL * 1024;

std::string describe(const CallDescription& call) {
  const auto table = allgather::algorithms();
  const std::string_view algorithm =
      call.algorithm < table.size() ? table[call.algorithm].name : "an unknown algorithm";
  return fmt::format("{} of {} bytes per rank by {}", operation_name(call.operation), call.bytes,
                     algorithm);
}

std::string name_of(int rank) {
  return rank < 0 ? std::string("the end of its own sends") : fmt::format("rank {}", rank);
}

}  // namespace

Engine::Engine(const Team& team, const SlotGeometry& geometry, std::uint64_t communicator)
    : team_(team),
      communicator_(communicator),
      done_counts_(team),
      slots_(geometry),
      context_{team, done_counts_,
               std::vector<std::uint64_t>(
                   static_cast<std::size_t>(team.roster->node_size(team.node)), 0)},
      executions_{Execution(context_), Execution(context_), Execution(context_)} {}

void Engine::connect(const CallPlan& plan) {
  for (const int peer : plan.peers()) {
    if (team_.is_local(peer)) continue;
    done_counts_.meet(peer);
    if (!team_.fabric->knows(peer)) team_.fabric->connect(peer, team_.events->rails_of(peer));
  }
}

void Engine::run(const CallPlan& plan, const Buffers& buffers, base::Deadline deadline) {
  throw_if_dead();
  running_ = &plan;
  next_slow_check_ns_ = 0;
  next_warning_ns_ = 0;
  try {
    run_slices(plan, buffers, deadline);
  } catch (const Error& error) {
    if (dead_) throw;
    // Something failed here alone, such as a registration: the others must not wait for it.
    die(error.code(), error.peer(), error.what());
  }
  running_ = nullptr;
}

void Engine::run_slices(const CallPlan& plan, const Buffers& buffers, base::Deadline deadline) {
  std::uint64_t begun = 0;
  for (std::uint64_t ended = 0; ended < plan.slices(); ++ended) {
    while (begun < plan.slices() && active_count_ < kMaxActive) begin(plan, begun++, buffers);
    if (!advance()) wait([this] { return advance(); }, deadline);
    end_oldest(deadline);
  }
  end_call(plan, deadline);
}

void Engine::begin(const CallPlan& plan, std::uint64_t slice, const Buffers& buffers) {
  Call call;
  call.number = ++sequence_;
  call.stamp = stamp_ = mix(plan.hash() ^ communicator_, call.number);
  if (slice == 0) {
    call.schedule = &plan.first();
  } else {
    call.keep_alive = plan.schedule(slice);
    call.schedule = call.keep_alive.get();
  }
  const std::uint64_t offset = slice * plan.slice_bytes();
  call.buffers.send = buffers.send + offset;
  call.buffers.receive = buffers.receive + offset;
  call.buffers.receive_bytes = buffers.receive_bytes - offset;
  call.description = plan.description();
  call.slot = slots_.take(plan.slot_bytes(), call.number);
  call.zero_copy = plan.zero_copy();

  shm::RankLine& line = team_.segment->line(team_.local_rank);
  // The time of entry is filled in when the wait gets long: most calls need no clock.
  shm::enter_call(line, call.number, call.stamp, 0);
  const auto index = static_cast<std::size_t>((oldest_ + active_count_) % kMaxActive);
  steps_done_[index] = false;
  try {
    executions_[index].start(std::move(call));
  } catch (...) {
    // What it had registered of the user's memory goes with it.
    executions_[index].finish();
    throw;
  }
  ++active_count_;
}

bool Engine::advance() {
  bool in_turn = true;
  for (int i = 0; i < active_count_; ++i) {
    Execution& execution = active(i);
    bool& done = steps_done_[static_cast<std::size_t>((oldest_ + i) % kMaxActive)];
    if (!done) done = execution.advance(in_turn);
    if (execution.mismatch() != nullptr) report_mismatch(*execution.mismatch(), execution.call());
    in_turn = in_turn && !execution.holds_the_turn();
  }
  return steps_done_[static_cast<std::size_t>(oldest_)];
}

void Engine::end_oldest(base::Deadline deadline) {
  Execution& execution = active(0);
  if (execution.call().zero_copy && !execution.user_memory_free()) {
    wait(
        [this, &execution] {
          advance();
          return execution.user_memory_free();
        },
        deadline);
  }
  const std::uint64_t number = execution.call_number();
  execution.finish();
  oldest_ = (oldest_ + 1) % kMaxActive;
  --active_count_;
  done_counts_.finished(number);
}

void Engine::end_call(const CallPlan& plan, base::Deadline deadline) {
  if (transport::Fabric* const fabric = team_.fabric; fabric != nullptr && !plan.peers().empty()) {
    // What lies in slot memory may be read by the rails later, but only a call makes progress for
    // sure: so it ends when everything has left this process.
    if (!fabric->flushed()) wait([fabric] { return fabric->flushed(); }, deadline);
    if (plan.description().bytes >= kAcknowledgeAtOnceBytes) fabric->flush_acknowledgements();
    done_counts_.refresh_mine();
    // Those who put here without hearing of us by the way, such as a ring's other neighbour.
    for (const int peer : plan.peers()) {
      if (!team_.is_local(peer)) done_counts_.tell_if_behind(peer);
    }
  }
  shm::RankLine& line = team_.segment->line(team_.local_rank);
  if (line.entered_ns.load(std::memory_order_relaxed) != 0) {
    shm::leave_call(line);
  }
}

template <class Ready>
void Engine::wait(const Ready& ready, base::Deadline deadline) {
  const bool rails = team_.fabric != nullptr && !running_->peers().empty();
  shm::Backoff backoff(rails ? kRailWait : team_.wait_policy);
  std::int64_t since_ns = 0;
  checked_ = false;
  for (;;) {
    const bool moved = rails && team_.fabric->progress();
    if (ready()) return;
    if (team_.segment->aborted()) throw_abort_record();
    check_failures();
    if (moved) {
      backoff.restart();
      continue;
    }
    const bool tired = backoff.pause();
    if (!tired && !backoff.slow_check_due()) continue;
    if (since_ns == 0) {
      since_ns = base::now_ns();
      // Most waits end before: they cost no acknowledgement and no word of what is done.
      next_slow_check_ns_ = since_ns + kSlowCheckNs;
    }
    slow_checks(deadline, since_ns);
    if (tired) sleep();
  }
}

void Engine::check_failures() {
  if (team_.fabric == nullptr || !team_.fabric->failure().has_value()) return;
  const auto& failure = *team_.fabric->failure();
  die(failure.mismatch ? Code::Mismatch : Code::Network, failure.peer, failure.text);
}

void Engine::slow_checks(base::Deadline deadline, std::int64_t since_ns) {
  const std::int64_t now = base::now_ns();
  if (now < next_slow_check_ns_) return;
  next_slow_check_ns_ = now + kSlowCheckNs;
  checked_ = true;
  shm::RankLine& line = team_.segment->line(team_.local_rank);
  if (line.entered_ns.load(std::memory_order_relaxed) == 0) {
    line.entered_ns.store(since_ns, std::memory_order_relaxed);
  }
  if (team_.fabric != nullptr) {
    // Also in a call without peers: earlier puts to and from this rank may be unacknowledged, and
    // other ranks wait for the slots that those hold.
    team_.fabric->progress();
    team_.fabric->flush_acknowledgements();
  }
  done_counts_.refresh_mine();
  if (team_.fabric != nullptr) {
    for (const int peer : running_->peers()) {
      if (!team_.is_local(peer)) done_counts_.tell(peer);
    }
  }
  check_local_ranks();
  if (deadline.passed()) {
    const int awaited = active_count_ > 0 ? active(0).awaited_rank() : -1;
    die(Code::Timeout, awaited,
        fmt::format("{} did not end within its timeout; waiting for {}; raise ALLRAIL_TIMEOUT or "
                    "find out why it is late",
                    operation_name(running_->description().operation), name_of(awaited)));
  }
  if (now - since_ns > kWarnAfterNs && now > next_warning_ns_) {
    next_warning_ns_ = now + 10 * kWarnAfterNs;
    base::log_warning("waiting for {} s in {} for {}; nothing says that it died",
                      (now - since_ns) / 1'000'000'000,
                      operation_name(running_->description().operation),
                      name_of(active_count_ > 0 ? active(0).awaited_rank() : -1));
  }
}

void Engine::check_local_ranks() {
  const std::span<const int> ranks = team_.roster->local_ranks();
  for (int local = 0; local < static_cast<int>(ranks.size()); ++local) {
    const shm::RankLine& line = team_.segment->line(local);
    const bool has_left = line.state.load(std::memory_order_acquire) == shm::RankState::Goodbye;
    const shm::CallProgress other = shm::read_call(line);
    if (has_left && other.sequence < sequence_) {
      const int rank = ranks[static_cast<std::size_t>(local)];
      die(Code::PeerLost, rank,
          fmt::format("rank {} ended its use of Allrail after call {}, and this is call {}; every "
                      "rank must make the same collective calls",
                      rank, other.sequence, sequence_));
    }
    if (other.sequence == sequence_ && active_count_ > 0 && other.stamp != stamp_) {
      CallMismatch mismatch;
      mismatch.peer = ranks[static_cast<std::size_t>(local)];
      mismatch.theirs.call = sequence_;
      report_mismatch(mismatch, active(active_count_ - 1).call());
    }
  }
  if (team_.watch == nullptr) return;
  if (const auto dead = team_.watch->dead()) {
    const int rank = ranks[static_cast<std::size_t>(*dead)];
    if (team_.segment->line(*dead).state.load(std::memory_order_acquire) ==
        shm::RankState::Goodbye) {
      team_.watch->forget(*dead);
      return;
    }
    die(Code::PeerLost, rank, fmt::format("rank {} died; see its own output for the reason", rank));
  }
}

void Engine::sleep() {
  const bool rails = team_.fabric != nullptr && !running_->peers().empty();
  const Execution& execution = active(0);
  if (rails && (active_count_ == 0 || !execution.awaits_node())) {
    if (checked_) team_.fabric->flush_acknowledgements();
    team_.fabric->sleep(active_count_ > 1 || !checked_ ? 1 : kRailSleepMs);
    return;
  }
  const bool puts_open = team_.fabric != nullptr && team_.fabric->oldest_open_call() != UINT64_MAX;
  shm::sleep_until(
      *team_.segment, team_.local_rank, [&execution] { return execution.node_is_ready(); },
      rails || puts_open || !checked_ ? 1 : shm::kMaxSleepMs);
}

void Engine::drain(std::chrono::milliseconds patience) noexcept {
  if (team_.fabric == nullptr || dead_) return;
  try {
    auto deadline = base::Deadline::after(patience);
    std::uint64_t oldest = team_.fabric->oldest_open_call();
    while (oldest != UINT64_MAX && !deadline.passed() && !team_.segment->aborted() &&
           !team_.fabric->failure().has_value()) {
      // A slow rail is no reason to leave: only one on which nothing moves.
      if (team_.fabric->progress()) {
        deadline = base::Deadline::after(patience);
      } else {
        team_.fabric->flush_acknowledgements();
        team_.fabric->sleep(1);
      }
      oldest = team_.fabric->oldest_open_call();
    }
    team_.fabric->flush_acknowledgements();
  } catch (const std::exception& error) {
    base::log_warning("while leaving: {}", error.what());
  }
}

void Engine::idle_progress() {
  if (team_.fabric == nullptr || dead_) return;
  team_.fabric->progress();
  team_.fabric->flush_acknowledgements();
  done_counts_.refresh_mine();
}

void Engine::report_mismatch(const CallMismatch& mismatch, const Call& mine) {
  const BlockHeader& theirs = mismatch.theirs;
  const std::string what =
      theirs.description.algorithm == 0 && theirs.description.bytes == 0 && theirs.stamp == 0
          ? std::string("another operation, size, root or algorithm")
          : describe(theirs.description);
  die(Code::Mismatch, mismatch.peer,
      fmt::format("call {} differs between ranks: rank {} makes {}, rank {} makes {} (call {}); "
                  "every rank must make the same collective calls in the same order with the same "
                  "sizes and algorithm",
                  mine.number, team_.rank, describe(mine.description), mismatch.peer, what,
                  theirs.call));
}

void Engine::die(Code code, int peer, const std::string& text) {
  team_.segment->set_abort(static_cast<int>(code), peer,
                           fmt::format("rank {}: {}", team_.rank, text));
  if (team_.events != nullptr) team_.events->abort_set();
  throw_abort_record();
}

void Engine::throw_abort_record() {
  const shm::AbortRecord record = team_.segment->abort_record();
  dead_ = true;
  first_cause_ = record.text;
  // No rail may write into user memory after the error is out.
  if (team_.fabric != nullptr) team_.fabric->shut_down();
  for (int i = 0; i < active_count_; ++i) active(i).finish();
  active_count_ = 0;
  running_ = nullptr;
  throw Error(static_cast<Code>(record.code), record.text, record.peer);
}

void Engine::throw_if_dead() {
  if (dead_) {
    throw Error(Code::Aborted, "this communicator died earlier: " + first_cause_);
  }
  // Another rank may have ended it since the last call; nothing may be sent into what is dead.
  if (team_.segment->aborted()) throw_abort_record();
}

}  // namespace allrail::coll
