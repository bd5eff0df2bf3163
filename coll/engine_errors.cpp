// How the communicator ends: what this rank finds is told to all, and thrown.
#include "coll/allgather/allgather.hpp"
#include "coll/engine.hpp"
#include "lib/base/error.hpp"
#include "lib/base/log.hpp"

namespace allrail::coll {
namespace {

std::string describe(const CallDescription& call) {
  const auto table = allgather::algorithms();
  const std::string_view algorithm =
      call.algorithm < table.size() ? table[call.algorithm].name : "an unknown algorithm";
  const char* const memory = is_node_shared(call.memory)         ? " into a NodeBuffer"
                             : call.memory == MemoryKind::Buffer ? " into a Buffer"
                                                                 : "";
  return fmt::format("{} of {} bytes per rank by {}{}", operation_name(call.operation), call.bytes,
                     algorithm, memory);
}

}  // namespace

void Engine::report_mismatch(const CallMismatch& mismatch, const Call& mine) {
  const BlockHeader& theirs = mismatch.theirs;
  const std::string what =
      theirs.description.algorithm == 0 && theirs.description.bytes == 0 && theirs.stamp == 0
          ? fmt::format(
                "another operation, size, root, algorithm or kind of memory{}",
                is_node_shared(mine.description.memory)
                    ? ", or names another NodeBuffer, offset in it or displacements than the "
                      "rest of its node"
                    : "")
          : describe(theirs.description);
  die(Code::Mismatch, mismatch.peer,
      fmt::format("call {} differs between ranks: rank {} makes {}, rank {} makes {} (call {}); "
                  "every rank must make the same collective calls in the same order with the same "
                  "sizes, algorithm and kind of memory",
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
  first_cause_ = team_.segment->abort_record();
  dead_ = told_ = true;
  give_up_calls();
  throw Error(static_cast<Code>(first_cause_.code), first_cause_.text, first_cause_.peer);
}

void Engine::give_up_calls() {
  // No rail may write into user memory after the error is out.
  if (team_.fabric != nullptr) team_.fabric->shut_down();
  for (int i = 0; i < active_count_; ++i) active(i).finish();
  active_count_ = 0;
  for (CallRun* call = front_; call != nullptr; call = call->next) {
    call->state = CallRun::State::Failed;
    call->registration.release();
  }
  front_ = to_begin_ = nullptr;
}

void Engine::throw_if_dead() {
  if (dead_ && told_) {
    throw Error(Code::Aborted, "this communicator died earlier: " + first_cause_.text);
  }
  // Another rank may have ended it since the last call; nothing may be sent into what is dead.
  if (dead_ || team_.segment->aborted()) throw_abort_record();
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
