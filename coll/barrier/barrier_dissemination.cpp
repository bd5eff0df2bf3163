// Dissemination barrier for k ports over the nodes (Hensgen, Finkel and Manber 1988, there with one
// port; the distances are those of the k-port Bruck allgather in Qian and Afsahi 2008, 5.1.2), with
// flags inside each node.
//
// Ranks of a node raise their flags and the first of them sees them all. In round r it signals the
// nodes at distances d, 2d, ..., kd with d = (k+1)^r, as far as those are less than n, and awaits
// the signals from as far behind. A signal says that its sender and all it has heard of, itself and
// the d - 1 before it, have entered; so after round r a node has heard of (k+1)^(r+1) nodes. Then
// the first rank raises its flag for the others. A single node needs no first rank: everybody looks
// at everybody's flag. Steps: ceil(log_{k+1} n). Bytes: one header per signal. Any n.
#include <algorithm>
#include <vector>

#include "coll/barrier/barrier.hpp"
#include "coll/schedule/step_list.hpp"

namespace allrail::coll::barrier {
namespace {

using schedule::kHeaderBytes;
using schedule::Memory;
using schedule::StepList;

/// Distances of every round.
std::vector<std::vector<int>> distances(int participants, int ports) {
  std::vector<std::vector<int>> rounds;
  for (long long first = 1; first < participants; first *= ports + 1) {
    std::vector<int> round;
    for (int port = 1; port <= ports && port * first < participants; ++port) {
      round.push_back(static_cast<int>(port * first));
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

/// Between nodes, by the first rank of one: its own header lies at 0 of the slot, and that of every
/// signal behind it, in the order of the rounds.
void signal(const schedule::NodeMap& map, int node, int ports, schedule::Schedule& made,
            StepList& steps) {
  const auto all = distances(map.nodes(), ports);
  const auto first_rank = [&map](int other) {
    return map.ranks_of[static_cast<std::size_t>(other)].front();
  };
  steps.stamp(0);
  std::uint64_t place = kHeaderBytes;
  for (std::size_t round = 0; round < all.size(); ++round) {
    steps.enter_round(static_cast<int>(round));
    for (std::size_t port = 0; port < all[round].size(); ++port) {
      const int to = (node + all[round][port]) % map.nodes();
      steps.put(port, first_rank(to), Memory::Slot, 0, Memory::Slot, place + port * kHeaderBytes,
                kHeaderBytes);
    }
    for (std::size_t port = 0; port < all[round].size(); ++port) {
      const int from = (node - all[round][port] + map.nodes()) % map.nodes();
      steps.await(port, first_rank(from), Memory::Slot, place, place, kHeaderBytes);
      made.header_offsets.push_back(place);
      place += kHeaderBytes;
    }
  }
  made.rounds = static_cast<int>(all.size());
}

}  // namespace

int rounds(int participants, int ports) {
  return static_cast<int>(distances(participants, ports).size());
}

int ports_for(int participants, int most) {
  int ports = 1;
  while (ports < most && rounds(participants, ports) > rounds(participants, most)) ++ports;
  return ports;
}

schedule::Schedule make_schedule(const schedule::Shape& shape, int rank) {
  schedule::check_shape(shape, rank);
  const schedule::NodeMap& map = shape.map;
  const int node = map.node_of[static_cast<std::size_t>(rank)];
  const int me = map.local_rank_of[static_cast<std::size_t>(rank)];
  const int members = map.node_size(node);
  schedule::Schedule made;
  made.slot_bytes = slot_bytes(map.nodes(), shape.ports);
  StepList steps(made);
  const bool looks_at_all = map.nodes() == 1 || me == 0;
  if (members > 1 && (map.nodes() == 1 || me != 0)) steps.publish(1);
  for (int other = 0; looks_at_all && other < members; ++other) {
    if (other != me) steps.await_local(other, 1);
  }
  if (map.nodes() == 1) {
    made.stages = members > 1 ? 1 : 0;
    return made;
  }
  if (me == 0) {
    signal(map, node, shape.ports, made, steps);
    if (members > 1) steps.publish(2);
  } else {
    steps.await_local(0, 2);
    made.rounds = rounds(map.nodes(), shape.ports);
  }
  made.stages = members > 1 ? 2 : 0;
  return made;
}

std::uint64_t slot_bytes(int nodes, int ports) {
  std::uint64_t signals = 0;
  for (const auto& round : distances(nodes, ports)) signals += round.size();
  return nodes == 1 ? 0 : (1 + signals) * kHeaderBytes;
}

}  // namespace allrail::coll::barrier
