#include "coll/node_walk.hpp"

#include <algorithm>
#include <array>

#include "coll/done_counts.hpp"
#include "coll/envelopes.hpp"
#include "coll/team.hpp"
#include "lib/base/copy.hpp"
#include "shm/once.hpp"

namespace allrail::coll {
namespace {

using schedule::Step;
using schedule::StepKind;

inline bool comes(const shm::Flag& flag, std::uint64_t value, shm::ShortWait& wait) noexcept {
  if (shm::reached(flag, value)) return true;
  wait.renew_spins();
  bool goes_on = true;
  while (goes_on) {
    goes_on = wait.pass();
    if (shm::reached(flag, value)) return true;
  }
  return false;
}

/// By Memory.
using Memories = std::array<std::byte*, 4>;

[[gnu::always_inline]] inline void copy(const Memories& memory, const Step& step) noexcept {
  const std::byte* const from = memory[static_cast<std::size_t>(step.from)] + step.from_offset;
  std::byte* const to = memory[static_cast<std::size_t>(step.to)] + step.to_offset;
  // In place the send buffer is this rank's block of the receive buffer.
  if (from != to) base::copy_block(to, from, step.bytes);
}

/// Nothing is copied into the send buffer, so its address is not written through.
[[gnu::always_inline]] inline Memories memories_of(const Team& team,
                                                   const NodeCall& call) noexcept {
  const int slot = call.identity.slot.number;
  return {const_cast<std::byte*>(call.buffers.send), call.buffers.receive,
          team.segment->bytes().data() + team.slot_offset(team.node, slot),
          team.segment->flag(slot, 0).payload};
}

/// False where another rank is at it for longer than this one looks. With memories of its own, see
/// rare_step().
bool once(const Team& team, const NodeCall& call, shm::ShortWait& wait) noexcept {
  const shm::NodeSegment& segment = *team.segment;
  const std::uint64_t number = call.identity.number;
  shm::OnceWord& word = segment.once(call.identity.slot.number);
  shm::OnceTurn turn = shm::take_once(word, number, team.local_rank);
  if (turn == shm::OnceTurn::Mine) {
    const Memories memory = memories_of(team, call);
    for (const Step& step : call.schedule.once) copy(memory, step);
    shm::finish_once(segment, word, number);
    return true;
  }
  wait.renew_spins();
  for (bool goes_on = true; goes_on && turn == shm::OnceTurn::Other;) {
    goes_on = wait.pass();
    turn = shm::take_once(word, number, team.local_rank);
  }
  return turn == shm::OnceTurn::Done;
}

/// Not inline: the walk of calls without such a step is a matter of instructions.
[[gnu::noinline]] bool rare_step(const Team& team, const NodeCall& call, const Step& step,
                                 shm::ShortWait& wait) noexcept {
  if (step.kind == StepKind::Once) return once(team, call, wait);
  std::byte* const slot =
      team.segment->bytes().data() + team.slot_offset(team.node, call.identity.slot.number);
  Envelopes& envelopes = *call.buffers.envelopes;
  const auto peer = static_cast<std::size_t>(step.peer);
  if (step.kind == StepKind::Pack) {
    envelopes.pack(peer, 0, step.bytes, slot + step.to_offset);
  } else {
    envelopes.unpack(peer, 0, step.bytes, slot + step.from_offset);
  }
  return true;
}

}  // namespace

bool is_on_node(const schedule::Schedule& schedule) noexcept {
  return std::ranges::all_of(schedule.steps, [](const Step& step) {
    return step.kind == StepKind::Copy || step.kind == StepKind::Pack ||
           step.kind == StepKind::Unpack || step.kind == StepKind::Publish ||
           step.kind == StepKind::AwaitLocal || step.kind == StepKind::Once;
  });
}

std::size_t walk_on_node(const Team& team, DoneCounts& done_counts, const NodeCall& call,
                         shm::ShortWait& wait) noexcept {
  const shm::NodeSegment& segment = *team.segment;
  const int slot = call.identity.slot.number;
  const shm::Flag* const flags = &segment.flag(slot, 0);
  const std::uint64_t first_value = shm::flag_value(call.identity.number, 0);
  const Memories memory = memories_of(team, call);

  const Step* const steps = call.schedule.steps.data();
  const Step* const end = steps + call.schedule.steps.size();
  const Step* next = steps;
  for (; next != end; ++next) {
    const Step& step = *next;
    if (step.kind == StepKind::Copy) {
      copy(memory, step);
    } else if (step.kind == StepKind::Publish) {
      shm::raise(segment, slot, team.local_rank, first_value | step.stage, call.identity.flag_stamp,
                 done_counts.mine());
    } else if (step.kind == StepKind::AwaitLocal) {
      const shm::Flag& flag = flags[step.peer];
      if (!comes(flag, first_value | step.stage, wait)) break;
      // The engine's walk says how the calls differ.
      if (flag.stamp.load(std::memory_order_relaxed) != call.identity.flag_stamp) break;
      done_counts.note_local(step.peer, flag.done.load(std::memory_order_relaxed));
    } else if (!rare_step(team, call, step, wait)) {
      break;
    }
  }
  return static_cast<std::size_t>(next - steps);
}

}  // namespace allrail::coll
