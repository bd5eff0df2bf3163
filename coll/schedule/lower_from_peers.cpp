#include <stdexcept>

#include "coll/schedule/lower.hpp"
#include "coll/schedule/step_list.hpp"

// Every rank of the only node reads the blocks of the others where they lie.
//
// A flag at stage 1 says "my block may be read", at stage 2 "I have read all that I wanted". A rank
// returns when all others are at stage 2, since its memory is its own again then. Each rank begins
// with the rank behind it, so that no block is read by all at once.
namespace allrail::schedule {
namespace {

constexpr std::uint32_t kOffered = 1;
constexpr std::uint32_t kHasRead = 2;

}  // namespace

Schedule lower_from_peers(const Shape& shape, int rank, Memory source) {
  check_shape(shape, rank);
  if (shape.map.nodes() != 1) {
    throw std::invalid_argument("ranks of several nodes cannot read each other's memory");
  }
  Schedule schedule;
  StepList steps(schedule);
  const auto me = static_cast<std::size_t>(rank);
  const std::uint64_t place = shape.receive_offsets[me];
  const auto copy_own = [&] {
    steps.copy(Memory::Send, 0, Memory::Receive, place, shape.bytes[me]);
  };
  const int ranks = shape.ranks();
  if (ranks == 1) {
    copy_own();
    return schedule;
  }
  if (source == Memory::Receive) copy_own();
  steps.offer(kOffered, source, source == Memory::Receive ? place : 0, shape.bytes[me]);
  if (source == Memory::Send) copy_own();
  for (int distance = 1; distance < ranks; ++distance) {
    const int peer = (rank + distance) % ranks;
    const auto block = static_cast<std::size_t>(peer);
    steps.await_local(peer, kOffered);
    steps.read(peer, shape.receive_offsets[block], shape.bytes[block]);
  }
  steps.publish(kHasRead);
  for (int distance = 1; distance < ranks; ++distance) {
    steps.await_local((rank + distance) % ranks, kHasRead);
  }
  schedule.stages = kHasRead;
  return schedule;
}

}  // namespace allrail::schedule
