// Waiting for a call, and what is looked after meanwhile.
#include <chrono>
#include <utility>

#include "coll/engine.hpp"
#include "coll/engine_group.hpp"
#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "shm/progress.hpp"

namespace allrail::coll {
namespace {

// A leader that sleeps on its rails cannot be woken by ranks of its node, so it looks this often.
constexpr int kRailSleepMs = 20;
// How long a rank that leaves waits for a peer that takes nothing of what calls left in its rails
// or in the kernel,
constexpr std::chrono::seconds kLeftPatience(20);
// and for one that a link to is to come up again.
constexpr std::chrono::seconds kCutOffPatience(2);
// Looking at rails is a system call, after which a yield is cheap; then it is time to sleep.
constexpr shm::WaitPolicy kRailWait{0, 100};
// Every so many looks at the rails are at all links, the others at one.
constexpr int kGlances = 8;
// Where only small puts are on their way, as those of a barrier or of small calls, nobody waits for
// what the other links hold. Larger ones measure their rails by acknowledgements: read late, those
// make a rail look slow.
constexpr int kQuietGlances = 32;
constexpr std::uint64_t kQuietPutBytes = 8192;
constexpr std::uint64_t kQuietBytes = 32768;
// After so many looks that saw nothing a rank acknowledges what it has: those for whom it waits may
// wait for that, and in most waits nobody does. A look takes longer where others want the core.
constexpr int kLooksUntilAcknowledged = 32;
constexpr int kLooksOnSharedCore = 8;
// Looks that moved something until the clock is asked.
constexpr std::uint32_t kMovesPerCheck = 256;

}  // namespace

bool Engine::uses_rails() const {
  if (team_.fabric == nullptr) return false;
  for (const CallRun* call = front_; call != nullptr; call = call->next) {
    if (!call->plan->peers().empty()) return true;
  }
  return false;
}

bool Engine::test(CallRun& call) {
  if (call.state == CallRun::State::Ended) return true;
  if (dead_) throw_if_dead();
  guarded([this, &call] {
    hand_over_all();
    step(&call);
  });
  if (holds()) note_held();
  if (call.state == CallRun::State::Ended) return true;
  if (team_.group != nullptr) team_.group->advance_others(*this);
  return false;
}

/// Everything that can be done without waiting, for one call or (null) for all that are in flight.
/// True if the rails moved anything.
bool Engine::step(const CallRun* awaited) {
  const bool rails = uses_rails();
  const bool moved = rails && team_.fabric->progress();
  if (rails) tell_what_is_done();
  if (rails) note_look(moved);
  advance();
  if (awaited != nullptr ? awaited->state == CallRun::State::Ended : front_ == nullptr)
    return moved;
  if (team_.segment->aborted()) throw_abort_record();
  check_failures();
  if (waiting_since_ns_ == 0) {
    waiting_since_ns_ = base::now_ns();
    next_slow_check_ns_ = waiting_since_ns_ + team_.slow_check_ns;
  }
  slow_checks();
  return moved;
}

bool Engine::go_on() {
  if (dead_) return false;
  const std::uint64_t ended = slices_ended_;
  bool moved = false;
  keeps_errors_ = true;
  try {
    guarded([this, &moved] { moved = step(nullptr); });
  } catch (const Error&) {
    told_ = false;  // the next call of this communicator tells it
  }
  keeps_errors_ = false;
  hand_over();
  return moved || slices_ended_ != ended;
}

void Engine::wait(CallRun& call) {
  if (call.state == CallRun::State::Ended) return;
  if (dead_) throw_if_dead();
  guarded([this, &call] {
    hand_over_all();
    wait_for(call);
  });
  if (holds()) note_held();
}

bool Engine::holds() const { return team_.fabric != nullptr && team_.fabric->holds(); }

void Engine::hand_over() {
  if (team_.fabric != nullptr) team_.fabric->hand_over();
}

void Engine::hand_over_others() {
  if (team_.group != nullptr) team_.group->hand_over_others(*this);
}

/// Before a wait, or a call of another kind: the rank that is waited for may wait for what lies
/// here, and the call may have nothing to do with rails.
void Engine::hand_over_all() {
  hand_over();
  hand_over_others();
}

/// The user goes away: what this engine left in its rails must not wait for the next call.
void Engine::note_held() {
  if (team_.group != nullptr) team_.group->note_held(*this);
}

void Engine::wait_for(const CallRun& call) {
  // Ranks of another communicator may wait there for a call that this rank has started, and these
  // for them.
  const bool others = team_.group != nullptr && team_.group->others_in_flight(*this);
  std::uint32_t moves = 0;
  for (;;) {
    // Every slice is a wait of its own.
    const std::uint64_t slices_ended = slices_ended_;
    const bool rails = uses_rails();
    shm::Backoff backoff(rails ? kRailWait : team_.wait_policy, core_);
    if (std::exchange(walk_took_long_, false)) backoff.tire();
    waiting_since_ns_ = 0;
    checked_ = false;
    idle_looks_ = 0;
    while (slices_ended == slices_ended_) {
      bool moved = rails && look();
      if (rails) tell_what_is_done();
      advance();
      if (call.state == CallRun::State::Ended) return;
      if (others) moved = team_.group->advance_others(*this) || moved;
      if (team_.segment->aborted()) throw_abort_record();
      check_failures();
      if (rails) note_look(moved);
      if (moved) {
        backoff.restart();
        // Also while bytes come the time may be over, or a rank be dead that another call awaits.
        if (++moves % kMovesPerCheck != 0) continue;
      }
      const bool tired = !moved && backoff.pause();
      if (!tired && !moved && !backoff.slow_check_due()) continue;
      if (waiting_since_ns_ == 0) {
        waiting_since_ns_ = base::now_ns();
        // Most waits end before: they cost no word of what is done.
        next_slow_check_ns_ = waiting_since_ns_ + team_.slow_check_ns;
      }
      if (slow_checks() && team_.group != nullptr && !others && !moved) check_mutual_wait();
      if (tired) sleep(rails, others);
    }
  }
}

void Engine::note_look(bool moved) {
  if (moved) {
    idle_looks_ = 0;
    return;
  }
  const int most = core_.is_likely() ? kLooksOnSharedCore : kLooksUntilAcknowledged;
  if (idle_looks_ <= most && ++idle_looks_ == most) team_.fabric->acknowledge();
}

/// Streams of puts from kTurnBytes on come over whichever rail is done first, so the other links
/// are looked at more often for them.
bool Engine::is_quiet() const {
  const CallPlan& plan = *front_->plan;
  return plan.most_awaited_bytes() < (plan.may_coalesce() ? kTurnBytes : kQuietPutBytes) &&
         team_.fabric->bytes_in_flight() < kQuietBytes;
}

/// A look at the rails: mostly only at what is awaited, since every link may cost a system call.
bool Engine::look() {
  const schedule::Step* const put = active_count_ == 1 ? active(0).awaited_put() : nullptr;
  if (put != nullptr && ++glances_ < (is_quiet() ? kQuietGlances : kGlances)) {
    return team_.fabric->glance(put->peer, put->bytes, active(0).port_of(*put));
  }
  glances_ = 0;
  return team_.fabric->progress();
}

void Engine::check_failures() {
  if (team_.fabric == nullptr || !team_.fabric->failure().has_value()) return;
  report_failure(*team_.fabric->failure());
}

/// True if it was time for them.
bool Engine::slow_checks() {
  const std::int64_t now = base::now_ns();
  if (now < next_slow_check_ns_) return false;
  next_slow_check_ns_ = now + team_.slow_check_ns;
  checked_ = true;
  shm::RankLine& line = team_.segment->line(team_.local_rank);
  if (line.entered_ns.load(std::memory_order_relaxed) == 0) {
    line.entered_ns.store(waiting_since_ns_, std::memory_order_relaxed);
  }
  share_progress();
  check_local_ranks();
  check_deadlines();
  warn_if_long(now);
  if (team_.group == nullptr) return true;
  team_.group->look_after_others(*this, now);
  if (dead_) throw_abort_record();
  return true;
}

/// Peers may wait for slots that puts of this rank, or others of its node, still held when its last
/// call ended: the end of the next call, which may be one that they put in, would be too late.
void Engine::tell_what_is_done() {
  if (!done_counts_.has_risen()) return;
  bool told = false;
  for (const CallRun* call = front_; call != nullptr; call = call->next) {
    told = tell_peers_behind(*call->plan) || told;
  }
  if (told) team_.fabric->send_told();
}

/// What others may wait for while this rank waits, or computes.
void Engine::share_progress() {
  if (team_.fabric != nullptr) {
    // Also in a call without peers: earlier puts to and from this rank may be unacknowledged, and
    // other ranks wait for the slots that those hold.
    team_.fabric->progress();
    team_.fabric->flush_acknowledgements();
  }
  done_counts_.refresh_mine();
  if (team_.fabric == nullptr) return;
  for (const CallRun* call = front_; call != nullptr; call = call->next) {
    for (const int peer : call->plan->peers()) {
      if (!team_.is_local(peer)) done_counts_.tell(peer);
    }
  }
}

/// `others`: calls of other communicators are in flight, whose news wake nobody here.
void Engine::sleep(bool rails, bool others) {
  const Execution& execution = active(0);
  if (rails && (active_count_ == 0 || !execution.awaits_node())) {
    // Peers may wait for these alone, and nobody looks here for a while.
    if (checked_) {
      team_.fabric->flush_acknowledgements();
    } else {
      team_.fabric->acknowledge();
    }
    team_.fabric->sleep(active_count_ > 1 || !checked_ || others ? 1 : kRailSleepMs);
    return;
  }
  hand_over();
  const bool puts_open = team_.fabric != nullptr && team_.fabric->oldest_open_call() != UINT64_MAX;
  shm::sleep_until(
      *team_.segment, team_.local_rank, [&execution] { return execution.node_is_ready(); },
      rails || puts_open || !checked_ || others ? 1 : shm::kMaxSleepMs);
}

void Engine::drain(std::chrono::milliseconds patience) noexcept {
  if (team_.fabric == nullptr || dead_) return;
  try {
    auto deadline = base::Deadline::after(patience);
    // What a call that ended left in its rails is with nobody else yet, and what they have on its
    // way is lost if the peer answers to a process that is gone.
    const auto left_deadline = base::Deadline::after(kLeftPatience);
    const auto cut_off_deadline = base::Deadline::after(kCutOffPatience);
    const auto is_over = [this, &deadline, &left_deadline, &cut_off_deadline] {
      if (team_.fabric->is_cut_off() && !cut_off_deadline.passed()) return false;
      if (team_.fabric->oldest_open_call() == UINT64_MAX) return true;
      return deadline.passed() && (left_deadline.passed() || team_.fabric->delivered());
    };
    auto sent = team_.fabric->sent();
    while (!is_over() && !team_.segment->aborted() && !team_.fabric->failure().has_value()) {
      const bool any = team_.fabric->progress();
      // A slow rail is no reason to leave: only one on which nothing moves. That another one is
      // dialled again and again does not count.
      if (std::exchange(sent, team_.fabric->sent()) != sent) {
        deadline = base::Deadline::after(patience);
      } else if (!any) {
        team_.fabric->flush_acknowledgements();
        team_.fabric->sleep(1);
      }
    }
    team_.fabric->flush_acknowledgements();
  } catch (const std::exception& error) {
    base::log_warning("while leaving: {}", error.what());
  }
}

void Engine::idle_progress() {
  if (dead_) return;
  if (front_ == nullptr) {
    if (team_.fabric == nullptr) return;
    team_.fabric->progress();
    team_.fabric->flush_acknowledgements();
    done_counts_.refresh_mine();
    return;
  }
  keeps_errors_ = true;
  try {
    guarded([this] {
      share_progress();
      advance();
      if (team_.segment->aborted()) throw_abort_record();
      check_failures();
    });
  } catch (const Error&) {
    told_ = false;  // the user's thread is told when it comes
  }
  keeps_errors_ = false;
  hand_over();
}

}  // namespace allrail::coll
