#include "lib/node_control.hpp"

#include "shm/progress.hpp"

namespace allrail {

bool NodeControl::aborted() { return segment_.aborted(); }

transport::AbortCause NodeControl::abort_cause() {
  shm::AbortRecord record = segment_.abort_record();
  return {record.code, record.peer, std::move(record.text)};
}

void NodeControl::set_abort(const transport::AbortCause& cause) {
  segment_.set_abort(cause.code, cause.peer, cause.text);
}

void NodeControl::set_late(int rank) { segment_.set_late_rank(rank); }

void NodeControl::read_progress(std::vector<transport::LocalProgress>& progress) {
  using State = transport::LocalProgress::State;
  for (std::size_t local = 0; local < progress.size(); ++local) {
    const shm::RankLine& line = segment_.line(static_cast<int>(local));
    transport::LocalProgress& one = progress[local];
    one.rank = line.rank.load(std::memory_order_relaxed);
    switch (line.state.load(std::memory_order_acquire)) {
      case shm::RankState::Joining:
        one.state = State::Joining;
        break;
      case shm::RankState::Active:
        one.state = State::Active;
        break;
      case shm::RankState::Goodbye:
        one.state = State::Goodbye;
        break;
    }
    const shm::CallProgress call = shm::read_call(line);
    one.in_call = call.entered_ns != 0;
    one.stamp = call.stamp;
    one.sequence = one.in_call ? call.sequence : 0;
    one.last = call.sequence;
  }
}

std::uint64_t NodeControl::stamp_of(std::size_t local, std::uint64_t call) {
  return shm::recent_stamp(segment_.line(static_cast<int>(local)), call);
}

}  // namespace allrail
