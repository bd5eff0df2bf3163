#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "coll/schedule/cost.hpp"

// What steps of schedules cost: Hockney's model with k ports (Qian and Afsahi 2008, section 3.2)
// and the LogGP model (Alexandrov and others 1995), with several rails per node, memory that the
// ranks of a node share, and a tree of switches (the t-intra-switch and t-inter-switch of Kandalla
// and others 2010, section 4). Times in seconds.
namespace allrail::schedule {

/// Leaf switches with nodes, and one way up and one way down between each of them and the rest.
struct LeafSwitches {
  // Nodes of leaf 0, 1, ...; the last size repeats. Empty: all nodes are at one switch.
  std::vector<int> leaf_nodes{};
  double hop_s = 0;               // of a switch: one within a leaf, three between two
  double oversubscription = 1;    // rates of a leaf's nodes together, by that of its way up
  double uplink_bytes_per_s = 0;  // instead, where it is not 0: the same for every leaf
  double background = 0;          // the share of the ways up and down that others use, below 1
};

/// Whose rails they are: every rank has rails of its own, which are the ports of the k-port model,
/// or the ranks of a node share them.
enum class RailOwner : std::uint8_t { Rank, Node };

struct Model {
  double startup_s = 0;  // for which a message keeps its rail busy at both ends, beside its bytes
  double latency_s = 0;  // from one rail to the other, beside switches; the rails do not wait
  double post_s = 0;     // of the core, for every put
  double arrival_s = 0;  // of the core, for every put that it awaits
  RailOwner rail_owner = RailOwner::Node;
  std::vector<double> rail_s_per_byte{0};  // in either direction, by rail
  // Longer puts travel on all rails of a node at once, in shares by their rates. Others on one, by
  // their step and port. Ports of ranks are never striped.
  std::uint64_t stripe_bytes = std::numeric_limits<std::uint64_t>::max();
  double copy_s_per_byte = 0;    // of the core that copies
  double memory_s_per_byte = 0;  // of a domain's memory, for all who copy there; 0: no limit
  double flag_s = 0;             // of the core that reads a flag that another one raised
  bool local_puts_by_rail = false;
  // Nodes are `domains` memories with an even share of the ranks each, and all rails are near to
  // `rail_domain`: what ranks of other domains receive takes their rail `far_factor` times as long
  // (Goglin and Moreaud 2011: only who receives matters).
  int domains = 1;
  int rail_domain = 0;
  double far_factor = 1;
  LeafSwitches switches{};

  int rails() const { return static_cast<int>(rail_s_per_byte.size()); }
};

/// The domain of a rank by its place among the ranks of its node.
inline int domain_of(const Model& model, int local, int node_size) {
  return static_cast<int>(static_cast<long long>(local) * model.domains / node_size);
}

/// Hockney's model and nothing else: every rank has so many ports, everything in a node is free.
inline Model hockney_model(const Hockney& parameters, int ports) {
  Model model;
  model.startup_s = parameters.startup_s;
  model.rail_owner = RailOwner::Rank;
  model.rail_s_per_byte.assign(static_cast<std::size_t>(ports), parameters.seconds_per_byte);
  return model;
}

}  // namespace allrail::schedule
