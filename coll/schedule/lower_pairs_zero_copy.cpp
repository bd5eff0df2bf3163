// Blocks of pairs straight between user buffers, where every rank is a participant of its own.
#include <stdexcept>

#include "coll/schedule/pairs.hpp"
#include "coll/schedule/step_list.hpp"

namespace allrail::schedule {

Schedule lower_pairs_zero_copy(PairExchangeFunction exchange, const PairShape& shape, Level level,
                               int rank) {
  check_level(level);
  if (shape.map.largest_node != 1 || !shape.matrix.empty()) {
    throw std::invalid_argument(
        "blocks of pairs go straight only between nodes of one rank and where all are of one size");
  }
  const auto rank_of = [&](int participant) {
    return level == Level::Smp ? shape.map.ranks_of[static_cast<std::size_t>(participant)].front()
                               : participant;
  };
  const auto own = static_cast<std::size_t>(rank);
  const int me = level == Level::Smp ? shape.map.node_of[own] : rank;
  const PairExchange exchanged = exchange(shape.map.ranks(), me, shape.ports);
  Schedule schedule;
  StepList steps(schedule);
  const auto keep = [&] {
    steps.copy(Memory::Send, shape.send_offsets[own], Memory::Receive, shape.receive_offsets[own],
               shape.uniform_bytes);
  };
  int number = 0;
  for (const PairRound& round : exchanged.rounds) {
    steps.enter_round(number++);
    for (std::size_t port = 0; port < round.puts.size(); ++port) {
      const PairTransfer& put = round.puts[port];
      if (put.blocks.size() != 1 || put.blocks.front().from != me) {
        throw std::invalid_argument("blocks that others send on have no place in user memory");
      }
      // Places are alike on all ranks, since sizes are: where its block is here, mine is there.
      const int peer = rank_of(put.peer);
      steps.put(port, peer, Memory::Send, shape.send_offsets[static_cast<std::size_t>(peer)],
                Memory::Receive, shape.receive_offsets[own], shape.uniform_bytes);
    }
    if (number == 1) keep();
    for (std::size_t port = 0; port < round.awaits.size(); ++port) {
      const int peer = rank_of(round.awaits[port].peer);
      steps.await(port, peer, Memory::Receive, 0,
                  shape.receive_offsets[static_cast<std::size_t>(peer)], shape.uniform_bytes);
    }
  }
  if (number == 0) keep();
  schedule.rounds = number;
  return schedule;
}

}  // namespace allrail::schedule
