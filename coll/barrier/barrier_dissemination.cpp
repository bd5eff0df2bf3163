// Dissemination barrier for k ports over the nodes (Hensgen, Finkel and Manber 1988, there with one
// port; the distances are those of the k-port Bruck allgather in Qian and Afsahi 2008, 5.1.2), with
// flags inside each node.
//
// Ranks of a node raise their flags and the one that talks sees them all. In round r it signals the
// nodes at distances d, 2d, ..., kd with d = (k+1)^r, as far as those are less than n, and awaits
// the signals from as far behind. A signal says that its sender and all it has heard of, itself and
// the d - 1 before it, have entered; so after round r a node has heard of (k+1)^(r+1) nodes. Then
// it raises its flag for the others.
//
// Where n is a power of k+1, a round goes round within the k+1 nodes that differ in its digit of
// base k+1, as in recursive doubling. Then a node signals those that signal it: it has about half
// as many links, shares them with other calls, and what comes back carries the acknowledgements.
//
// On a single node nobody talks: everybody looks at everybody's flag. Steps: ceil(log_{k+1} n).
// Bytes: one header per signal. Any n.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "coll/barrier/barrier.hpp"
#include "coll/schedule/step_list.hpp"

namespace allrail::coll::barrier {
namespace {

using schedule::kHeaderBytes;
using schedule::Memory;
using schedule::StepList;

/// visit(distance, signals) for every round: `signals` nodes, at the multiples of `distance`.
template <class Visit>
void for_rounds(int participants, int ports, const Visit& visit) {
  for (long long distance = 1; distance < participants; distance *= ports + 1) {
    visit(static_cast<int>(distance),
          static_cast<int>(std::min<long long>(ports, (participants - 1) / distance)));
  }
}

bool is_power(int nodes, int base) {
  long long power = 1;
  while (power < nodes) power *= base;
  return power == nodes;
}

/// The node so many times the distance ahead, or behind where `times` is negative.
int node_at(int node, int times, int distance, int nodes, int ports) {
  const int group = ports + 1;
  if (!is_power(nodes, group)) return (node + times * distance + nodes) % nodes;
  const int digit = node / distance % group;
  return node + ((digit + times + group) % group - digit) * distance;
}

/// Between nodes, by the rank that talks for one: its own header lies at 0 of the slot, and that of
/// every signal behind it, in the order of the rounds.
void signal(const schedule::Groups& groups, int node, int ports, schedule::Schedule& made,
            StepList& steps) {
  const int nodes = groups.map.nodes();
  steps.stamp(0);
  std::uint64_t place = kHeaderBytes;
  int round = 0;
  for_rounds(nodes, ports, [&](int distance, int signals) {
    steps.enter_round(round++);
    for (int port = 0; port < signals; ++port) {
      const int to = node_at(node, port + 1, distance, nodes, ports);
      steps.put(static_cast<std::size_t>(port), groups.talking_rank(to), Memory::Slot, 0,
                Memory::Slot, place + static_cast<std::uint64_t>(port) * kHeaderBytes,
                kHeaderBytes);
    }
    for (int port = 0; port < signals; ++port) {
      const int from = node_at(node, -(port + 1), distance, nodes, ports);
      steps.await(static_cast<std::size_t>(port), groups.talking_rank(from), Memory::Slot, place,
                  place, kHeaderBytes);
      made.header_offsets.push_back(place);
      place += kHeaderBytes;
    }
  });
}

void check(const schedule::NodeMap& map, int ports, int rank) {
  if (rank >= 0 && rank < map.ranks() && ports >= 1 && ports <= schedule::kLargestPorts) return;
  throw std::invalid_argument("a barrier of " + std::to_string(map.ranks()) +
                              " ranks has no rank " + std::to_string(rank) + " with " +
                              std::to_string(ports) + " ports: it has 1 to " +
                              std::to_string(schedule::kLargestPorts));
}

}  // namespace

int rounds(int participants, int ports) {
  int count = 0;
  for_rounds(participants, ports, [&count](int, int) { ++count; });
  return count;
}

int ports_for(int participants, int most) {
  int ports = 1;
  while (ports < most && rounds(participants, ports) > rounds(participants, most)) ++ports;
  return ports;
}

schedule::Schedule make_schedule(const schedule::Groups& groups, int ports, int rank) {
  const schedule::NodeMap& map = groups.map;
  check(map, ports, rank);
  const int node = map.node_of[static_cast<std::size_t>(rank)];
  const int me = map.local_rank_of[static_cast<std::size_t>(rank)];
  const int members = map.node_size(node);
  const int talker = groups.leader(node, 0);
  schedule::Schedule made;
  made.slot_bytes = slot_bytes(map.nodes(), ports);
  made.rounds = rounds(map.nodes(), ports);
  StepList steps(made);
  const bool looks_at_all = map.nodes() == 1 || me == talker;
  if (members > 1 && (map.nodes() == 1 || me != talker)) steps.publish(1);
  for (int other = 0; looks_at_all && other < members; ++other) {
    if (other != me) steps.await_local(other, 1);
  }
  if (map.nodes() == 1) {
    made.stages = members > 1 ? 1 : 0;
    return made;
  }
  if (me == talker) {
    signal(groups, node, ports, made, steps);
    if (members > 1) steps.publish(2);
  } else {
    steps.await_local(talker, 2);
  }
  made.stages = members > 1 ? 2 : 0;
  return made;
}

std::uint64_t slot_bytes(int nodes, int ports) {
  int signals = 0;
  for_rounds(nodes, ports, [&signals](int, int count) { signals += count; });
  return nodes == 1 ? 0 : (1 + static_cast<std::uint64_t>(signals)) * kHeaderBytes;
}

}  // namespace allrail::coll::barrier
