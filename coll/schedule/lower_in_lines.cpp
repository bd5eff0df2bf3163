#include <stdexcept>

#include "coll/schedule/lower.hpp"
#include "coll/schedule/step_list.hpp"

// Small blocks of the only node, in the lines of the flags: one line is written, and one is read of
// every other rank. Each rank begins with the one behind it.
namespace allrail::schedule {

Schedule lower_in_lines(const Shape& shape, int rank) {
  check_shape(shape, rank);
  if (shape.map.nodes() != 1) {
    throw std::invalid_argument("flags are seen on their own node only");
  }
  Schedule schedule;
  StepList steps(schedule);
  const auto line = [](int local) { return static_cast<std::uint64_t>(local) * kLineStride; };
  const auto me = static_cast<std::size_t>(rank);
  const int ranks = shape.ranks();
  if (ranks > 1) {
    if (shape.bytes[me] > kLineBytes) throw std::invalid_argument("a block is larger than a line");
    steps.copy(Memory::Send, 0, Memory::Lines, line(rank), shape.bytes[me]);
    steps.publish(1);
    schedule.stages = 1;
  }
  steps.copy(Memory::Send, 0, Memory::Receive, shape.receive_offsets[me], shape.bytes[me]);
  for (int distance = 1; distance < ranks; ++distance) {
    const int peer = (rank + distance) % ranks;
    const auto block = static_cast<std::size_t>(peer);
    steps.await_local(peer, 1);
    steps.copy(Memory::Lines, line(peer), Memory::Receive, shape.receive_offsets[block],
               shape.bytes[block]);
  }
  return schedule;
}

}  // namespace allrail::schedule
