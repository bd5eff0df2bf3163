// Which ranks of a node talk over rails, and for whom: a pure choice from where ranks run and where
// rails are. What a machine looks like, topology.hpp finds out.
//
// Kandalla 2009 has one leader per socket, so that what a group gathers lies in its own memory, and
// compares with all leaders on one socket (Figure 7). Goglin and Moreaud 2011 elect leaders near
// the network: only what is received suffers from a far one, so the distance counts from rail to
// leader, who receives, and not from the ranks of a group to their leader, where it only sends.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace allrail::topology {

enum class LeaderPolicy : std::uint8_t {
  Near,    // near the rails, which they share; groups are equal and follow the domains
  Socket,  // one per domain, which is its group
  Packed,  // all in one domain, for comparison
};
/// `near`, `socket` or `packed`.
std::optional<LeaderPolicy> parse_leader_policy(std::string_view text);
const char* leader_policy_name(LeaderPolicy policy);

inline constexpr std::uint8_t kUnknownPlace = 255;

/// Where a rank runs, in three bytes: what ranks tell each other at start-up.
struct RankPlace {
  // The memory (NUMA node) near its cpus, or their socket on a machine with one memory, by the
  // system's number. kUnknownPlace: it may run in several.
  std::uint8_t domain = kUnknownPlace;
  std::uint8_t rail_levels = kUnknownPlace;  // of the hardware tree, to its nearest rail
  std::uint8_t near_rails = 0;               // bit r: rail r is one of those nearest ones

  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

struct NodeLeaders {
  std::vector<int> leaders;      // local rank, by lane
  std::vector<int> lane_of;      // by local rank: the group that it is in
  std::vector<std::string> why;  // by lane, half a sentence; only where asked for
};
enum class Reasons : std::uint8_t { No, Yes };

/// Leaders of one node for so many lanes. They are different ranks as long as there are enough; a
/// leader is in a group that it leads. Near is Socket where no rail is known to be near anybody;
/// where places say nothing at all, groups are contiguous and their first ranks lead. `lanes` is at
/// least 1 and `node` not empty.
NodeLeaders elect_leaders(LeaderPolicy policy, std::span<const RankPlace> node, int lanes,
                          Reasons reasons = Reasons::No);

/// How many leaders a node with these ranks calls for: one per domain that has ranks, or with Near
/// one per rail that is near to some of them. At least 1, at most one per rank.
int natural_leaders(LeaderPolicy policy, std::span<const RankPlace> node);

}  // namespace allrail::topology
