// The straight way through a call on one node, whose steps are copies and flags.
//
// Such a call waits for less than a microsecond where every rank has a core, and what the queue of
// calls and a walk that can stop anywhere take would be most of its time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "coll/registration.hpp"
#include "coll/schedule/schedule.hpp"
#include "coll/slots.hpp"
#include "shm/wait.hpp"

namespace allrail::coll {

class DoneCounts;
struct Team;

/// What tells a slice of a call from all others, and where its ranks meet.
struct SliceIdentity {
  std::uint64_t number = 0;
  std::uint64_t stamp = 0;
  std::uint64_t flag_stamp = 0;  // in flags: what the ranks of a node agree on besides
  SlotUse slot;
};

struct NodeCall {
  const schedule::Schedule& schedule;
  const Buffers& buffers;
  const SliceIdentity& identity;
};

/// Whether walk_on_node() knows all of its steps.
bool is_on_node(const schedule::Schedule& schedule) noexcept;

/// Walks until a flag is not of this call, or not raised when `wait` is over; the slot is free.
/// Returns how many steps are done.
std::size_t walk_on_node(const Team& team, DoneCounts& done_counts, const NodeCall& call,
                         shm::ShortWait& wait) noexcept;

}  // namespace allrail::coll
