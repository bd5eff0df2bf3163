// Adds envelopes to the schedules of an alltoallv.
#pragma once

#include "coll/schedule/pairs.hpp"
#include "coll/schedule/schedule.hpp"

namespace allrail::coll {

/// The same schedule with a Pack or Unpack in place of every copy out of the send buffer and into
/// the receive buffer, one for each envelope: `shape` says where they would lie in these, one
/// behind the other by rank, and how long they are, or the parts of them in this slice.
schedule::Schedule with_envelopes(schedule::Schedule schedule, const schedule::PairShape& shape,
                                  int rank);

}  // namespace allrail::coll
