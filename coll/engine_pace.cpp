// What barriers spread of the rails: the words of PaceAgreement travel in the headers of the ranks
// that talk for their nodes, and what was agreed on in the barrier before goes to the other ranks
// of the node with the flag that lets them leave.
#include "coll/engine.hpp"

namespace allrail::coll {

/// Returns what the headers of this call say.
std::uint32_t Engine::enter_barrier(const Call& call) {
  if (call.schedule->header_offsets.empty()) return 0;
  const auto agreed = static_cast<std::uint32_t>(pace_.agreed(call.schedule->rounds));
  shm::RankLine& line = team_.segment->line(team_.local_rank);
  // The flag of this call, raised later, orders it.
  line.told[barriers_ % 2].store(agreed, std::memory_order_relaxed);
  return pace_.begin(team_.fabric->pace());
}

void Engine::leave_barrier(const Execution& execution) {
  pace_.heard(execution.pace_words());
  const shm::RankLine& line = team_.segment->line(talking_local_rank_);
  const std::uint32_t agreed = line.told[barriers_++ % 2].load(std::memory_order_relaxed);
  agreed_pace_ = static_cast<transport::Pace>(agreed);
}

}  // namespace allrail::coll
