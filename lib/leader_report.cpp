// Who leads, for whom and why: of a running job, and of one that is only described.
#include <algorithm>

#include <fmt/format.h>

#include "coll/roster.hpp"
#include "coll/selection.hpp"
#include "lib/base/error.hpp"
#include "lib/diagnostics.hpp"
#include "lib/node_spec.hpp"
#include "lib/topology/leaders.hpp"
#include "lib/topology/topology.hpp"
#include "lib/world.hpp"

namespace allrail::diagnostics {
namespace {

using topology::LeaderPolicy;
using topology::RankPlace;

LeaderPolicy policy_named(const std::string& name) {
  const auto policy = topology::parse_leader_policy(name);
  if (!policy) {
    base::fail(Code::InvalidArgument, "'{}' is no leader policy; use near, socket or packed", name);
  }
  return *policy;
}

/// The rails over which small puts come to a rank there first; empty: all are alike.
std::vector<std::string> near_rails(const RankPlace& place, const std::vector<std::string>& rails) {
  std::vector<std::string> names;
  for (std::size_t rail = 0; rail < rails.size() && rail < 8; ++rail) {
    if ((place.near_rails >> rail & 1U) != 0) names.push_back(rails[rail]);
  }
  return names;
}

struct Job {
  std::vector<int> node_of;
  std::vector<RankPlace> places;                // by rank
  std::vector<std::string> cpus;                // by rank, or empty
  std::vector<std::vector<std::string>> rails;  // by rank
  std::string policy;
  int leaders = 0;
};

NodeLeadership node_leadership(const Job& job, const std::vector<int>& ranks, int lanes) {
  std::vector<RankPlace> places;
  places.reserve(ranks.size());
  for (const int rank : ranks) places.push_back(job.places[static_cast<std::size_t>(rank)]);
  const auto elected =
      topology::elect_leaders(policy_named(job.policy), places, lanes, topology::Reasons::Yes);
  NodeLeadership node;
  for (std::size_t local = 0; local < ranks.size(); ++local) {
    const auto rank = static_cast<std::size_t>(ranks[local]);
    RankLeadership& one = node.ranks.emplace_back();
    one.rank = ranks[local];
    one.group = elected.lane_of[local];
    if (!job.cpus.empty()) one.cpus = job.cpus[rank];
    if (places[local].domain != topology::kUnknownPlace) one.domain = places[local].domain;
    if (places[local].rail_levels != topology::kUnknownPlace) {
      one.rail_levels = places[local].rail_levels;
    }
    one.near_rails = near_rails(places[local], job.rails[rank]);
    one.rails = job.rails[rank];
  }
  for (std::size_t lane = 0; lane < elected.leaders.size(); ++lane) {
    node.leaders.push_back({elected.leaders[lane], elected.why[lane]});
  }
  return node;
}

LeadershipInfo leadership_of(const Job& job) {
  const schedule::NodeMap map(job.node_of);
  coll::Roster roster(map, 0);
  roster.elect_by(policy_named(job.policy), job.places);
  LeadershipInfo info;
  info.policy = job.policy;
  info.natural_leaders = roster.natural_leaders();
  info.bytes_per_leader = coll::kBytesPerLeader;
  info.lanes = std::clamp(job.leaders > 0 ? job.leaders : info.natural_leaders, 1,
                          std::min(map.largest_node, schedule::kMostLanes));
  for (const std::vector<int>& ranks : map.ranks_of) {
    info.nodes.push_back(node_leadership(job, ranks, info.lanes));
  }
  return info;
}

}  // namespace

LeadershipInfo explain_leaders(const Communicator& communicator, int leaders) {
  const World& world = communicator.internals();
  Job job;
  job.node_of = world.roster().node_of_ranks();
  job.policy = world.options().leader_policy;
  job.leaders = leaders > 0 ? leaders : world.options().leaders;
  const auto places = world.directory().places(world.roster().ranks());
  job.places.assign(places.begin(), places.end());
  for (int rank = 0; rank < world.roster().ranks(); ++rank) {
    auto& names = job.rails.emplace_back();
    for (const auto& end : world.directory().rails_of(rank).ends) names.push_back(end.name);
  }
  return leadership_of(job);
}

LeadershipInfo imagine_leaders(const ImaginedNodes& nodes, const Options& settings, int leaders) {
  using topology::Machine;
  const Machine machine = nodes.topology_file.empty()
                              ? Machine::discover(Machine::Detail::WithDevices)
                              : Machine::read(nodes.topology_file);
  std::vector<std::string> rails = nodes.rails;
  if (rails.empty()) {
    for (const topology::Device& device : machine.devices()) {
      if (device.is_rdma && rails.size() < 8) rails.push_back(device.name);
    }
  }
  for (const std::string& rail : nodes.rails) {
    if (machine.knows(rail)) continue;
    base::fail(Code::InvalidArgument,
               "this machine has no device '{}': name rails as lstopo does, such as mlx5_0, eth0 "
               "or 0000:3b:00.0",
               rail);
  }
  Job job;
  job.policy = settings.leader_policy;
  job.leaders = leaders > 0 ? leaders : settings.leaders;
  const int ranks = nodes.ranks > 0 ? nodes.ranks : machine.usable_cores();
  job.node_of = virtual_nodes(nodes.nodes, ranks);
  const schedule::NodeMap map(job.node_of);
  job.places.resize(static_cast<std::size_t>(ranks));
  job.cpus.resize(static_cast<std::size_t>(ranks));
  job.rails.assign(static_cast<std::size_t>(ranks), rails);
  for (const std::vector<int>& local : map.ranks_of) {
    const auto cpusets = machine.one_core_each(static_cast<int>(local.size()));
    for (std::size_t i = 0; i < local.size(); ++i) {
      const auto rank = static_cast<std::size_t>(local[i]);
      job.cpus[rank] = cpusets[i];
      if (machine.domains() > 1) job.places[rank] = machine.place_of(cpusets[i], rails);
    }
  }
  return leadership_of(job);
}

}  // namespace allrail::diagnostics
