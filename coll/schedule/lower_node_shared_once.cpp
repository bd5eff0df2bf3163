#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "coll/schedule/lower.hpp"
#include "coll/schedule/node_shared_steps.hpp"

// Small blocks into the receive buffer of the only node.
//
// Every rank leaves its block in the slot, or in the line of its flag if all fit there. Whoever
// first sees the flags of all others copies all blocks to their places: nobody reads the last
// result any more, and nobody else writes. So a rank that shares its core needs one turn on it
// after the last rank has come. In lower_node_shared() it needs two, to write its own block when
// all have entered and to see what the others have written.
//
// One flag per rank and one word of the node; n copies of m bytes by n ranks, then by one rank.
namespace allrail::schedule {
namespace {

bool fit_lines(const Shape& shape) { return *std::ranges::max_element(shape.bytes) <= kLineBytes; }

}  // namespace

Schedule lower_node_shared_once(const Shape& shape, int rank) {
  check_shape(shape, rank);
  if (shape.map.nodes() != 1) {
    throw std::invalid_argument("flags are seen on their own node only");
  }
  NodeSharedSteps node(shape, rank);
  if (node.alone()) {
    node.copy_own();
    return std::move(node.schedule());
  }
  const Memory memory = fit_lines(shape) ? Memory::Lines : Memory::Slot;
  Schedule copies;
  StepList once(copies);
  std::uint64_t place = 0;
  for (int peer = 0; peer < shape.ranks(); ++peer) {
    const std::uint64_t bytes = shape.bytes[peer];
    if (peer == rank) node.steps().copy(Memory::Send, 0, memory, place, bytes);
    once.copy(memory, place, Memory::Receive, shape.receive_offsets[peer], bytes);
    place += memory == Memory::Lines ? kLineStride : bytes;
  }
  node.publish(NodeSharedSteps::kEntered);
  node.await_others(NodeSharedSteps::kEntered);
  node.steps().once();
  Schedule& schedule = node.schedule();
  schedule.once = std::move(copies.steps);
  schedule.stages = NodeSharedSteps::kEntered;
  schedule.slot_bytes = node_shared_once_slot_bytes(shape);
  return std::move(schedule);
}

std::uint64_t node_shared_once_slot_bytes(const Shape& shape) {
  if (shape.ranks() == 1 || fit_lines(shape)) return 0;
  return std::accumulate(shape.bytes.begin(), shape.bytes.end(), std::uint64_t{0});
}

}  // namespace allrail::schedule
