// Ready tokens, as steps of a schedule.
#pragma once

#include <cstdint>

#include "coll/schedule/schedule.hpp"
#include "coll/schedule/shape.hpp"

namespace allrail::coll {

/// Who tells others of its memory: the one rank that talks for its node, or every rank.
enum class TokensOf : std::uint8_t { Nodes, Ranks };

/// Whom a rank tells: those that put into its receive buffer, or also those into whose it puts, who
/// learn by that nothing but that it makes the same call.
enum class TokensTo : std::uint8_t { Senders, All };

/// Slot bytes of the tables of a node of so many ranks.
std::uint64_t token_bytes(const schedule::NodeMap& map, TokensOf owners, int node_size);

/// The zero-copy schedule with its ready tokens: this rank tells every peer that will put into its
/// receive buffer where that is, and awaits a peer's token before its first put there. Token 0 of a
/// table is its rank's own, token i + 1 that of node, or rank, i. It is told behind the Stamp where
/// there is one, and at the beginning else. The tables begin the slot, and what the schedule has
/// there follows them.
schedule::Schedule with_ready_tokens(const schedule::Schedule& bare, const schedule::NodeMap& map,
                                     int rank, TokensOf owners = TokensOf::Nodes,
                                     TokensTo told = TokensTo::Senders);

}  // namespace allrail::coll
