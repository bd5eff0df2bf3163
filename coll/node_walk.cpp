#include "coll/node_walk.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "coll/done_counts.hpp"
#include "coll/team.hpp"
#include "shm/wait.hpp"

namespace allrail::coll {
namespace {

using schedule::Memory;
using schedule::Step;
using schedule::StepKind;

inline bool comes(const shm::Flag& flag, std::uint64_t value, int looks) noexcept {
  for (; looks > 0; --looks) {
    if (shm::reached(flag, value)) return true;
    shm::pause_processor();
  }
  return shm::reached(flag, value);
}

}  // namespace

bool is_on_node(const schedule::Schedule& schedule) noexcept {
  return std::ranges::all_of(schedule.steps, [](const Step& step) {
    return step.kind == StepKind::Copy || step.kind == StepKind::Publish ||
           step.kind == StepKind::AwaitLocal;
  });
}

std::size_t walk_on_node(const Team& team, DoneCounts& done_counts, const NodeCall& call,
                         int looks) noexcept {
  const shm::NodeSegment& segment = *team.segment;
  const int slot = call.identity.slot.number;
  const shm::Flag* const flags = &segment.flag(slot, 0);
  std::byte* const lines = segment.flag(slot, 0).payload;
  const std::uint64_t first_value = shm::flag_value(call.identity.number, 0);
  // By Memory. Nothing is copied into the send buffer, so its address is not written through.
  const std::array<std::byte*, 4> memory = {
      const_cast<std::byte*>(call.send), call.receive,
      segment.bytes().data() + team.slot_offset(team.node, slot), lines};

  const std::size_t count = call.schedule.steps.size();
  const Step* const steps = call.schedule.steps.data();
  for (std::size_t i = 0; i < count; ++i) {
    const Step& step = steps[i];
    if (step.kind == StepKind::Copy) {
      const std::byte* const from = memory[static_cast<std::size_t>(step.from)] + step.from_offset;
      std::byte* const to = memory[static_cast<std::size_t>(step.to)] + step.to_offset;
      // In place the send buffer is this rank's block of the receive buffer.
      if (from != to) std::memcpy(to, from, step.bytes);
    } else if (step.kind == StepKind::Publish) {
      shm::raise(segment, slot, team.local_rank, first_value | step.stage, call.identity.flag_stamp,
                 done_counts.mine());
    } else {
      const shm::Flag& flag = flags[step.peer];
      if (!comes(flag, first_value | step.stage, looks)) return i;
      // The engine's walk says how the calls differ.
      if (flag.stamp.load(std::memory_order_relaxed) != call.identity.flag_stamp) return i;
      done_counts.note_local(step.peer, flag.done.load(std::memory_order_relaxed));
    }
  }
  return count;
}

}  // namespace allrail::coll
