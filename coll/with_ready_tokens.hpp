// Ready tokens, as steps of a schedule.
#pragma once

#include "coll/schedule/schedule.hpp"
#include "coll/schedule/shape.hpp"

namespace allrail::coll {

/// The zero-copy schedule with its ready tokens: this rank tells every peer that will put into its
/// receive buffer where that is, and awaits a peer's token before its first put there. Of a node
/// one rank talks to others: token i of the slot is from node i - 1; token 0 is mine. It is told
/// behind the Stamp where there is one, and at the beginning else.
schedule::Schedule with_ready_tokens(const schedule::Schedule& bare, const schedule::NodeMap& map,
                                     int rank);

}  // namespace allrail::coll
