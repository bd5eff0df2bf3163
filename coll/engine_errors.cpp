// How the communicator ends: what this rank finds is told to all, and thrown.
#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <string_view>
#include <thread>
#include <utility>

#include "coll/engine.hpp"
#include "coll/engine_group.hpp"
#include "coll/recipe.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/base/log.hpp"

namespace allrail::coll {
namespace {

// A rank asleep on its rails looks every 20 ms whether its node has ended, and a helper ten times a
// second.
constexpr std::chrono::milliseconds kNodePatience(500);
constexpr std::chrono::microseconds kNodeLook(200);
constexpr std::string_view kEndedElsewhere = "communicator ";

std::string describe(const CallDescription& call) {
  const std::string_view algorithm = algorithm_name(call.operation, call.algorithm);
  const std::string root = call.root < 0 ? "" : fmt::format(" with root {}", call.root);
  const char* const memory = is_node_shared(call.memory)         ? " into a NodeBuffer"
                             : call.memory == MemoryKind::Buffer ? " into a Buffer"
                                                                 : "";
  return fmt::format("{} of {} bytes per rank{} by {}{}", operation_name(call.operation),
                     call.bytes, root, algorithm, memory);
}

}  // namespace

std::string died_text(int rank) {
  return fmt::format("rank {} died; see its own output for the reason", rank);
}

/// The fabric knows of puts; what they were for is the oldest call here that needs that peer.
void Engine::report_failure(const transport::FabricFailure& failure) {
  const Code code = failure.mismatch ? Code::Mismatch : Code::Network;
  const auto needs_peer = [&](const CallRun& call) {
    return std::ranges::count(call.plan->peers(), failure.peer) > 0;
  };
  const CallRun* call = front_;
  while (call != nullptr && !needs_peer(*call)) call = call->next;
  if (call == nullptr) die(code, failure.peer, failure.text);
  die(code, failure.peer,
      fmt::format("{} cannot go on: {}", describe(call->plan->description()), failure.text));
}

void Engine::report_mismatch(const CallMismatch& mismatch, const Call& mine) {
  const BlockHeader& theirs = mismatch.theirs;
  const std::string what =
      theirs.description.algorithm == 0 && theirs.description.bytes == 0 && theirs.stamp == 0
          ? fmt::format(
                "another operation, size, root, algorithm or kind of memory, or differed in "
                "an earlier call{}",
                is_node_shared(mine.description.memory)
                    ? ", or names another NodeBuffer, offset in it or displacements than the "
                      "rest of its node"
                    : "")
      : describe(theirs.description) == describe(mine.description) &&
              theirs.call == mine.identity.number
          ? "the same with other counts, or after an earlier call that differed"
          : describe(theirs.description);
  die(Code::Mismatch, mismatch.peer,
      fmt::format("call {} differs between ranks: rank {} makes {}, rank {} makes {} (call {}); "
                  "every rank must make the same collective calls in the same order with the same "
                  "sizes, algorithm and kind of memory",
                  mine.identity.number, team_.rank, describe(mine.description), mismatch.peer, what,
                  theirs.call));
}

void Engine::report_failed_read(const FailedRead& failed) {
  const int peer = failed.peer;
  switch (failed.error_number) {
    case 0:
      die(Code::Mismatch, peer,
          fmt::format(
              "rank {} offers a block of {} bytes in a Buffer that is not known here; every "
              "rank must make the same calls of allocate()",
              peer, failed.bytes));
    case ESRCH:
      die(Code::PeerLost, peer, died_text(peer));
    case EFAULT:
      die(Code::InvalidArgument, peer,
          fmt::format("reading the block of {} bytes of rank {} failed: it, or its place in the "
                      "receive buffer of rank {}, is not memory; both must stay mapped until the "
                      "call returns",
                      failed.bytes, peer, team_.rank));
    default:
      die(Code::ResourceLimit, peer,
          fmt::format("reading the block of {} bytes of rank {} failed: {}; the system allowed it "
                      "at start-up and must not forbid it later, or set ALLRAIL_SINGLE_COPY=off",
                      failed.bytes, peer, base::errno_text(failed.error_number)));
  }
}

/// Takes no memory to tell the others: that may be what is missing.
void Engine::die(Code code, int peer, std::string_view text) {
  std::array<char, shm::kMaxAbortText> told;
  const auto end = fmt::format_to_n(told.data(), told.size(), "rank {}: {}", team_.rank, text);
  team_.segment->set_abort(static_cast<int>(code), peer,
                           {told.data(), std::min(end.size, told.size())});
  if (team_.events != nullptr) team_.events->abort_set();
  throw_abort_record();
}

void Engine::die_without_memory(Operation operation, std::uint64_t bytes) {
  std::array<char, shm::kMaxAbortText> text;
  const char* const name = operation_name(operation);
  const auto end =
      bytes == 0 ? fmt::format_to_n(text.data(), text.size(), "{}: {}", name, base::kNoMemory)
                 : fmt::format_to_n(text.data(), text.size(), "{} with buffers of {} bytes: {}",
                                    name, bytes, base::kNoMemory);
  die(Code::ResourceLimit, -1, {text.data(), std::min(end.size, text.size())});
}

void Engine::throw_abort_record() {
  dead_ = true;
  give_up_calls();
  try {
    first_cause_ = team_.segment->abort_record();
    told_ = true;
    if (team_.group != nullptr) team_.group->end_others(*this, first_cause_);
    if (!keeps_errors_ && std::exchange(shares_given_up_, false)) await_node();
    throw Error(static_cast<Code>(first_cause_.code), first_cause_.text, first_cause_.peer);
  } catch (const std::bad_alloc&) {
    throw Error(last_word_);
  }
}

void Engine::give_up_calls() {
  // No rail may write into user memory after the error is out.
  if (team_.fabric != nullptr) team_.fabric->shut_down();
  for (int i = 0; i < active_count_; ++i) active(i).finish();
  active_count_ = 0;
  for (CallRun* call = front_; call != nullptr; call = call->next) {
    call->state = CallRun::State::Failed;
    call->registration.release();
    if (is_node_shared(call->plan->description().memory)) shares_given_up_ = true;
  }
  front_ = to_begin_ = nullptr;
  team_.segment->line(team_.local_rank).gave_up.store(1, std::memory_order_release);
}

/// Into a NodeBuffer the other ranks of the node write too, and peers through the rails of one of
/// them: its bytes rest once all have given up, or are gone. Who computes where nobody looks for
/// it, or is stopped, does not give up: then patience ends.
void Engine::await_node() const {
  const auto rests = [this](int local_rank) {
    const shm::RankLine& line = team_.segment->line(local_rank);
    return line.gave_up.load(std::memory_order_acquire) != 0 ||
           line.state.load(std::memory_order_acquire) == shm::RankState::Goodbye ||
           (team_.watch != nullptr && team_.watch->is_dead(local_rank));
  };
  const auto end = base::Deadline::after(kNodePatience);
  const int ranks = static_cast<int>(team_.roster->local_ranks().size());
  for (int local_rank = 0; local_rank < ranks; ++local_rank) {
    while (!rests(local_rank) && !end.passed()) std::this_thread::sleep_for(kNodeLook);
  }
}

void Engine::notice_end() {
  if (dead_ || !team_.segment->aborted()) return;
  keeps_errors_ = true;
  try {
    throw_abort_record();
  } catch (const Error&) {
    told_ = keeps_errors_ = false;
  }
}

void Engine::end_with(const Team& other, const shm::AbortRecord& cause) {
  if (dead_) return;
  const int job_rank = other.job_rank_of(cause.peer);
  std::string text = cause.text;
  // Ranks have their numbers of the communicator that ended first; its text says which one it is.
  if (!text.starts_with(kEndedElsewhere)) {
    const std::string renamed =
        cause.peer < 0 || other.job_ranks.empty()
            ? ""
            : fmt::format(" (its rank {} is rank {} of the job)", cause.peer, job_rank);
    text = fmt::format("{}{} ended, and every other one of the job with it{}: {}", kEndedElsewhere,
                       other.name, renamed, cause.text);
  }
  team_.segment->set_abort(cause.code, team_.rank_of_job(job_rank), text);
  if (team_.events != nullptr) team_.events->abort_set();
  first_cause_ = team_.segment->abort_record();
  dead_ = true;
  told_ = false;
  give_up_calls();
}

void Engine::throw_end() {
  if (dead_ && told_) {
    try {
      throw Error(Code::Aborted, "this communicator died earlier: " + first_cause_.text);
    } catch (const std::bad_alloc&) {
      throw Error(last_word_);
    }
  }
  // Another rank may have ended it since the last call; nothing may be sent into what is dead.
  throw_abort_record();
}

void Engine::abandon(CallRun& call, std::chrono::milliseconds patience) noexcept {
  try {
    if (call.state == CallRun::State::InFlight) {
      call.abandoned = true;
      call.deadline = base::Deadline::after(patience);
      wait(call);
    }
  } catch (const std::exception& error) {
    told_ = false;  // the next call is told
    base::log_warning("while a plan, or a Buffer of it, is destroyed: {}", error.what());
  }
  call.registration.release();
}

}  // namespace allrail::coll
