#include "coll/schedule/tree.hpp"

#include <algorithm>
#include <utility>

namespace allrail::schedule {
namespace {

Round gather_in(const TreeLevel& level, int me) {
  Round round;
  if (level.is_parent(me)) {
    level.for_children_of(me, [&](int child) {
      round.awaits.push_back({child, child, level.subtree(child)});
    });
  } else if (level.is_child(me)) {
    round.puts.push_back({level.parent_of(me), me, level.subtree(me)});
  }
  return round;
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
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  Exchange exchange;
  exchange.rounds.resize(at(tree.rounds));
  const int end = place + tree.size[at(place)];
  for (int child = place + 1; child < end; child += tree.size[at(child)]) {
    exchange.rounds[at(tree.round[at(child)])].awaits.push_back(
        {child, child, tree.size[at(child)]});
  }
  if (tree.parent[at(place)] >= 0) {
    exchange.rounds[at(tree.round[at(place)])].puts.push_back(
        {tree.parent[at(place)], place, tree.size[at(place)]});
  }
  return exchange;
}

Exchange gather_at_root(int participants, int me, int ports) {
  Exchange exchange;
  if (participants == 1) return exchange;
  // Participant `from` puts in round (from - 1) / ports.
  exchange.rounds.resize(static_cast<std::size_t>((participants - 2) / ports + 1));
  const auto round_of = [&](int from) -> Round& {
    return exchange.rounds[static_cast<std::size_t>((from - 1) / ports)];
  };
  if (me != 0) {
    round_of(me).puts.push_back({0, me, 1});
    return exchange;
  }
  for (int from = 1; from < participants; ++from) round_of(from).awaits.push_back({from, from, 1});
  return exchange;
}
Exchange mirrored(const Exchange& exchange) {
  Exchange mirror = exchange;
  std::ranges::reverse(mirror.rounds);
  for (Round& round : mirror.rounds) std::swap(round.puts, round.awaits);
  return mirror;
}

}  // namespace allrail::schedule
