// On which leaf switch a node hangs: what its first rank finds out, and what the job makes of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coll/schedule/shape.hpp"
#include "lib/card.hpp"
#include "lib/topology/switch_map.hpp"

namespace allrail {

/// Which virtual node of its host a rank is on, -1 where the host is one node, and whether it is
/// the first rank there. Where the launcher does not tell who is on the host, or ALLRAIL_NODES does
/// not fit to it, everybody is first.
struct VirtualPlace {
  int node = -1;
  bool is_first = true;
};
VirtualPlace virtual_place(const std::vector<int>& local_ranks, int rank, const std::string& spec);

/// GUIDs of ports such as mlx5_0:1, and of their devices, as the system shows them in `folder`.
std::vector<std::uint64_t> guids_of(const std::vector<std::string>& rails,
                                    const std::string& folder);

/// Reads the file that `setting` names, or runs ibnetdiscover for at most `limit`. A host that is
/// not found, and a program that does not run, is a problem in the answer.
/// @throws Error{BadConfiguration} naming the file, and where in it, for one that cannot be read.
SwitchPlace find_switch_place(const std::string& setting, const topology::HostNames& names,
                              std::chrono::milliseconds limit);

/// By number, as schedule::Switches counts them.
struct SwitchNames {
  std::vector<std::string> leaves;
  std::vector<std::string> chassis;
};
struct JobSwitches {
  std::shared_ptr<const schedule::Switches> switches;  // null: not known of every node
  SwitchNames names;
  std::string warning;  // one sentence, where some node was asked for and is not known
};
/// From the cards of all ranks, so that all ranks come to the same. Of a node the first card that
/// says something counts. A leaf of no known chassis is one by itself where others have one.
JobSwitches settle_switches(const std::vector<Card>& cards, const std::vector<int>& node_of);

}  // namespace allrail
