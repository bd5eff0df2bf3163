#include "coll/schedule/tree.hpp"

#include <algorithm>
#include <utility>

namespace allrail::schedule {
namespace {

Round gather_in(const TreeLevel& level, int me) {
  Round round;
  if (level.is_parent(me)) {
    level.for_children_of(me, [&](int child) {
      round.awaits.push_back({child, child, level.subtree(child), level.port_of(child)});
    });
  } else if (level.is_child(me)) {
    round.puts.push_back({level.parent_of(me), me, level.subtree(me), level.port_of(me)});
  }
  return round;
}

template <class Visit>
void for_children(const Tree& tree, int place, const Visit& visit) {
  const int end = place + tree.size[at(place)];
  for (int child = place + 1; child < end; child += tree.size[at(child)]) {
    visit(child, tree.round[at(child)]);
  }
}

}  // namespace

Exchange gather_up_tree(int participants, int me, int ports) {
  Exchange exchange;
  for (TreeLevel level{participants, ports, 1}; level.size < participants;
       level.size = level.above()) {
    exchange.rounds.push_back(gather_in(level, me));
  }
  return exchange;
}

Exchange gather_up(const Tree& tree, int place) {
  Exchange exchange;
  exchange.rounds.resize(at(tree.rounds));
  for_children(tree, place, [&](int child, int round) {
    std::vector<Transfer>& awaits = exchange.rounds[at(round)].awaits;
    awaits.push_back({child, child, tree.size[at(child)], static_cast<int>(awaits.size())});
  });
  const int parent = tree.parent[at(place)];
  if (parent < 0) return exchange;
  int port = 0;
  for_children(tree, parent, [&](int child, int round) {
    if (child < place && round == tree.round[at(place)]) ++port;
  });
  exchange.rounds[at(tree.round[at(place)])].puts.push_back(
      {parent, place, tree.size[at(place)], port});
  return exchange;
}

Exchange gather_at_root(int participants, int me, int ports) {
  Exchange exchange;
  if (participants == 1) return exchange;
  // Participant `from` puts in round (from - 1) / ports.
  const int rounds = (participants - 2) / ports + 1;
  exchange.rounds.resize(at(rounds));
  const auto round_of = [&](int from) -> Round& {
    const int round = (from - 1) / ports;
    return exchange.rounds[at(round)];
  };
  if (me != 0) {
    round_of(me).puts.push_back({0, me, 1, (me - 1) % ports});
    return exchange;
  }
  for (int from = 1; from < participants; ++from) {
    round_of(from).awaits.push_back({from, from, 1, (from - 1) % ports});
  }
  return exchange;
}
Exchange mirrored(const Exchange& exchange) {
  Exchange mirror = exchange;
  std::ranges::reverse(mirror.rounds);
  for (Round& round : mirror.rounds) std::swap(round.puts, round.awaits);
  return mirror;
}

}  // namespace allrail::schedule
