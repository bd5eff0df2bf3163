#pragma once

#include <cstdint>
#include <string_view>

#include "coll/schedule/schedule.hpp"
#include "coll/schedule/shape.hpp"

// Nobody leaves before everybody has entered.
namespace allrail::coll::barrier {

inline constexpr std::string_view kAlgorithm = "smp-dissemination";

/// Rounds that dissemination takes among so many participants with `ports` ports.
int rounds(int participants, int ports);
/// The fewest ports, `most` at most, that take as few rounds as `most`: a port more is a message
/// more per round.
int ports_for(int participants, int most);

/// Over the nodes, one rank of each of which talks to others. Throws std::invalid_argument where
/// `rank` is not one of the ranks or a step could not count so many ports.
schedule::Schedule make_schedule(const schedule::Groups& groups, int ports, int rank);
/// Slot bytes of that schedule.
std::uint64_t slot_bytes(int nodes, int ports);

}  // namespace allrail::coll::barrier
