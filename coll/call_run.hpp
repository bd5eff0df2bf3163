// A call on its way through the engine: one entry of its queue.
#pragma once

#include <cstddef>
#include <cstdint>

#include "coll/node_walk.hpp"
#include "coll/plan.hpp"
#include "coll/registration.hpp"
#include "lib/base/clock.hpp"

namespace allrail::coll {

/// Belongs to whoever makes the call and stays where it is while it is InFlight. The engine keeps
/// it in its queue from start to end.
struct CallRun {
  enum class State { New, InFlight, Ended, Failed };

  const CallPlan* plan = nullptr;
  Buffers buffers;
  base::Deadline deadline = base::Deadline::never();
  /// The registration outlives the call: the next start of the same plan finds it.
  bool keeps_registration = false;

  // What follows is the engine's.
  State state = State::New;
  bool abandoned = false;         // its owner wants it gone
  std::uint64_t begun = 0;        // slices that have a number and a slot
  std::uint64_t ended = 0;        // slices whose steps are done here
  std::uint64_t last_number = 0;  // of the slice begun last
  // Of a call whose first steps were made before it was put into the queue; else of number 0.
  SliceIdentity walked;
  std::size_t walked_steps = 0;
  CallRun* next = nullptr;  // started after this one
  Registration registration;
};

}  // namespace allrail::coll
