// What is looked for now and then in a wait that takes long: deadlines, ranks of the node that
// left, died or make other calls, and two that wait for each other.
#include "coll/engine.hpp"
#include "coll/engine_group.hpp"
#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "shm/progress.hpp"

namespace allrail::coll {
namespace {

std::string name_of(int rank) {
  return rank < 0 ? std::string("the end of its own sends") : fmt::format("rank {}", rank);
}

/// The setting that says for how long such a call may take.
const char* limit_of(Operation operation) {
  return operation == Operation::StartUp ? "ALLRAIL_BOOTSTRAP_TIMEOUT" : "ALLRAIL_TIMEOUT";
}

}  // namespace

/// Two ranks of a node that wait for each other in different communicators wait for ever: neither
/// has anything else in flight, and each waits for the other in a call that this has not begun.
void Engine::check_mutual_wait() {
  // Only what a rank of this node does in that call itself ends such a wait.
  const int awaited = active_count_ > 0 && active(0).awaits_node() ? active(0).awaited_rank() : -1;
  if (awaited < 0) return;
  const std::uint64_t call = active(0).call_number();
  const int job_rank = team_.job_rank_of(awaited);
  team_.segment->line(team_.local_rank)
      .awaits.store(shm::awaits_word(call, job_rank), std::memory_order_release);
  const Engine* const other = team_.group->where_awaited(*this, job_rank);
  if (other == nullptr) return;
  const shm::RankLine& theirs = team_.segment->line(team_.local_rank_of(awaited));
  if (shm::read_call(theirs).sequence >= call) return;
  die(Code::Mismatch, awaited,
      fmt::format(
          "rank {} waits for rank {} in call {} of communicator {}, and that rank for it in "
          "communicator {}; ranks that have several communicators together must use them "
          "in the same order",
          team_.rank, awaited, call, team_.name, other->team_.name));
}

bool Engine::is_awaited_by(int job_rank) const noexcept {
  const int rank = team_.rank_of_job(job_rank);
  if (rank < 0 || rank >= team_.roster->ranks() || team_.node_of(rank) != team_.node) return false;
  const std::uint64_t word =
      team_.segment->line(team_.local_rank_of(rank)).awaits.load(std::memory_order_acquire);
  return shm::awaited_rank(word) == team_.job_rank_of(team_.rank) &&
         shm::awaiting_call(word) > sequence_;
}

void Engine::check_deadlines() {
  for (const CallRun* call = front_; call != nullptr; call = call->next) {
    if (!call->deadline.passed()) continue;
    const int awaited = late_rank();
    const char* const operation = operation_name(call->plan->description().operation);
    if (call->abandoned) {
      die(Code::Aborted, awaited,
          fmt::format("a plan of {}, or a Buffer of it, was destroyed while it ran and did not end "
                      "soon; waiting for {}; wait() for a plan before either is destroyed",
                      operation, name_of(awaited)));
    }
    die(Code::Timeout, awaited,
        fmt::format(
            "{} did not end within its timeout; waiting for {}; raise {} or find out why it "
            "is late",
            operation, name_of(awaited), limit_of(call->plan->description().operation)));
  }
}

void Engine::warn_if_long(std::int64_t now_ns) {
  if (now_ns - waiting_since_ns_ <= team_.warn_after_ns || now_ns <= next_warning_ns_) return;
  next_warning_ns_ = now_ns + 10 * team_.warn_after_ns;
  base::log_warning("waiting for {} s in {} for {}; nothing says that it died",
                    (now_ns - waiting_since_ns_) / 1'000'000'000,
                    operation_name(front_->plan->description().operation), name_of(late_rank()));
}

/// Who holds this rank up: the control plane may know of one that those wait for whom this rank
/// waits for.
int Engine::late_rank() {
  const int known = team_.segment->late_rank();
  if (known >= 0 && known != team_.rank) return known;
  return active_count_ > 0 ? active(0).awaited_rank() : -1;
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
    for (int i = 0; i < active_count_; ++i) {
      // Of a call with a root the other rank may be through already.
      const Call& mine = active(i).call();
      const std::uint64_t theirs = shm::recent_stamp(line, mine.identity.number);
      if (theirs == 0 || theirs == mine.identity.stamp) continue;
      CallMismatch mismatch;
      mismatch.peer = ranks[static_cast<std::size_t>(local)];
      mismatch.theirs.call = mine.identity.number;
      report_mismatch(mismatch, mine);
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
    die(Code::PeerLost, rank, died_text(rank));
  }
}

}  // namespace allrail::coll
