#include "coll/node_walk.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "coll/done_counts.hpp"
#include "coll/team.hpp"
#include "shm/once.hpp"

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

/// By Memory.
using Memories = std::array<std::byte*, 4>;

inline void copy(const Memories& memory, const Step& step) noexcept {
  const std::byte* const from = memory[static_cast<std::size_t>(step.from)] + step.from_offset;
  std::byte* const to = memory[static_cast<std::size_t>(step.to)] + step.to_offset;
  // In place the send buffer is this rank's block of the receive buffer.
  if (from != to) std::memcpy(to, from, step.bytes);
}

/// False where another rank is at it for longer than this one looks.
bool once(const Team& team, const NodeCall& call, const Memories& memory, int looks) noexcept {
  const shm::NodeSegment& segment = *team.segment;
  const std::uint64_t number = call.identity.number;
  shm::OnceWord& word = segment.once(call.identity.slot.number);
  shm::OnceTurn turn = shm::take_once(word, number, team.local_rank);
  if (turn == shm::OnceTurn::Mine) {
    for (const Step& step : call.schedule.once) copy(memory, step);
    shm::finish_once(segment, word, number);
    return true;
  }
  for (; turn == shm::OnceTurn::Other && looks > 0; --looks) {
    shm::pause_processor();
    turn = shm::take_once(word, number, team.local_rank);
  }
  return turn == shm::OnceTurn::Done;
}

}  // namespace

bool is_on_node(const schedule::Schedule& schedule) noexcept {
  return std::ranges::all_of(schedule.steps, [](const Step& step) {
    return step.kind == StepKind::Copy || step.kind == StepKind::Publish ||
           step.kind == StepKind::AwaitLocal || step.kind == StepKind::Once;
  });
}

std::size_t walk_on_node(const Team& team, DoneCounts& done_counts, const NodeCall& call,
                         int looks) noexcept {
  const shm::NodeSegment& segment = *team.segment;
  const int slot = call.identity.slot.number;
  const shm::Flag* const flags = &segment.flag(slot, 0);
  std::byte* const lines = segment.flag(slot, 0).payload;
  const std::uint64_t first_value = shm::flag_value(call.identity.number, 0);
  // Nothing is copied into the send buffer, so its address is not written through.
  const Memories memory = {const_cast<std::byte*>(call.send), call.receive,
                           segment.bytes().data() + team.slot_offset(team.node, slot), lines};

  const std::size_t count = call.schedule.steps.size();
  const Step* const steps = call.schedule.steps.data();
  for (std::size_t i = 0; i < count; ++i) {
    const Step& step = steps[i];
    if (step.kind == StepKind::Copy) {
      copy(memory, step);
    } else if (step.kind == StepKind::Publish) {
      shm::raise(segment, slot, team.local_rank, first_value | step.stage, call.identity.flag_stamp,
                 done_counts.mine());
    } else if (step.kind == StepKind::Once) {
      if (!once(team, call, memory, looks)) return i;
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
