#pragma once

#include <cstdint>

#include "coll/schedule/shape.hpp"
#include "coll/schedule/tree.hpp"

// The tree of topology-aware gathers and scatters: nodes below leaf switches below chassis.
namespace allrail::schedule {

/// How the members of a group come together: in a spanning binomial tree for k ports, or all with
/// the first one, k at a time.
enum class Join : std::uint8_t { Binomial, Direct };

/// Kandalla and others 2010, section 4.2: the nodes of a leaf switch gather at the first of them,
/// those of the switches of a chassis, where chassis are known, at one of these, and those of all
/// chassis at that of the root. Where `root`, a node, is not the first one on its switch, it leaves
/// the tree of that switch and is sent everything in one step more, so that the same nodes talk
/// across switches whatever the root is, as long as it is on the same switch.
///
/// With R switches R - 1 messages cross from one to another, one from every switch but the root's,
/// and as many less one as there are chassis cross from one to another. Rounds: those of the
/// largest switch, of the largest chassis, of all chassis, and the step more. `switches` fits the
/// nodes of a job, as check_shape() says. O(nodes).
Tree tree_over_switches(const Switches& switches, int root, Join join, int ports);

}  // namespace allrail::schedule
