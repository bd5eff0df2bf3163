#include "coll/schedule/rooted.hpp"

#include <cstddef>
#include <utility>

#include "coll/schedule/tree.hpp"

namespace allrail::schedule {
namespace {

/// The order in which the participants stand, and what one of them does in it.
struct Arrangement {
  std::vector<int> order;
  Exchange exchange;
};

Arrangement arrange(const RootedAlgorithm& algorithm, const Shape& shape, int top, int mine,
                    Direction direction) {
  if (algorithm.over_switches && shape.switches && shape.switches->leaves() > 1) {
    Tree tree = tree_over_switches(*shape.switches, top, *algorithm.over_switches, shape.ports);
    Exchange up = gather_up(tree, place_of(tree.order, mine));
    return {std::move(tree.order), direction == Direction::ToRoot ? std::move(up) : mirrored(up)};
  }
  const int count = participants(shape, algorithm.level);
  Arrangement arranged{order_from(top, count), {}};
  arranged.exchange = algorithm.exchange(count, place_of(arranged.order, mine), shape.ports);
  return arranged;
}

/// A region for every participant, with the blocks of its ranks one after the other. The root's
/// own block never travels: it is left out, wherever it is (-1: nobody's).
std::vector<std::uint64_t> blocks_by_place(const Shape& shape, Level level,
                                           const std::vector<int>& order, int root) {
  std::vector<std::uint64_t> bytes;
  bytes.reserve(order.size());
  for (const int participant : order) {
    std::uint64_t sum = 0;
    for (const int rank : ranks_of(shape, level, participant)) {
      if (rank != root) sum += shape.bytes[static_cast<std::size_t>(rank)];
    }
    bytes.push_back(sum);
  }
  return bytes;
}

}  // namespace

Schedule rooted_schedule(const RootedAlgorithm& algorithm, const Shape& shape, int root, int rank,
                         Direction direction) {
  check_shape(shape, rank);
  const Level level = algorithm.level;
  const bool gathers = direction == Direction::ToRoot;
  const int mine = participant_of(shape, level, rank);
  const int top = participant_of(shape, level, root);
  Arrangement arranged = arrange(algorithm, shape, top, mine, direction);
  Contents contents;
  contents.level = level;
  contents.order = std::move(arranged.order);
  contents.region_bytes = blocks_by_place(shape, level, contents.order, root);
  for (int place = 0; place < participants(shape, level); ++place) {
    const int participant = contents.order[static_cast<std::size_t>(place)];
    const bool is_held = mine == (gathers ? participant : top);
    if (is_held) contents.held.push_back(place);
    if (mine != participant && mine != top) continue;
    std::uint64_t offset = 0;
    for (const int other : ranks_of(shape, level, participant)) {
      if (other == root) continue;
      const std::uint64_t bytes = shape.bytes[static_cast<std::size_t>(other)];
      const std::uint64_t at_root = shape.receive_offsets[static_cast<std::size_t>(other)];
      const Part of_other{other, place, offset, 0, bytes};
      const Part of_root{root, place, offset, at_root, bytes};
      const Part& taken = gathers ? of_root : of_other;
      if (is_held) contents.given.push_back(gathers ? of_other : of_root);
      if (taken.rank == rank) contents.taken.push_back(taken);
      offset += bytes;
    }
  }
  const std::uint64_t own = shape.receive_offsets[static_cast<std::size_t>(root)];
  contents.keeps = rank == root;
  (gathers ? contents.kept_to : contents.kept_from) = own;
  contents.kept_bytes = shape.bytes[static_cast<std::size_t>(root)];
  return lower_contents(arranged.exchange, contents, shape, rank);
}

std::uint64_t rooted_slot_bytes(const RootedAlgorithm& algorithm, const Shape& shape,
                                int largest_node) {
  const auto order = order_from(0, participants(shape, algorithm.level));
  // Whatever the root is, so without leaving its block out.
  return contents_slot_bytes(blocks_by_place(shape, algorithm.level, order, -1), algorithm.level,
                             largest_node);
}

}  // namespace allrail::schedule
