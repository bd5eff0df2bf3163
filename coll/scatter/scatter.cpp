#include "coll/scatter/scatter.hpp"

#include <array>
#include <utility>

#include "coll/schedule/named.hpp"

namespace allrail::coll::scatter {
namespace {

using schedule::Join;
using schedule::Level;

constexpr std::array<Algorithm, 6> kAlgorithms{{
    {"direct", "the root sends every rank its block, k at a time", Level::Flat, direct},
    {"binomial", "down a k-port tree of ranks: log steps", Level::Flat, binomial},
    {"smp-direct", "the root's node sends every node its blocks, k at a time", Level::Smp, direct},
    {"smp-binomial", "down a k-port tree of nodes: log steps", Level::Smp, binomial},
    {"topology", "down a tree of switches, then down one of the nodes of every leaf switch",
     Level::Smp, binomial, Join::Binomial},
    {"topology-direct", "the root's node to the first one on every leaf switch, these to theirs",
     Level::Smp, direct, Join::Direct},
}};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm* find_algorithm(std::string_view name) {
  return schedule::find_named(algorithms(), name);
}

schedule::Schedule make_schedule(const Algorithm& algorithm, const schedule::Shape& shape, int root,
                                 int rank) {
  schedule::check_shape(shape, rank);
  const Level level = algorithm.level;
  const int count = participants(shape, level);
  const int mine = participant_of(shape, level, rank);
  const bool holds = mine == participant_of(shape, level, root);
  schedule::Contents contents;
  schedule::Arrangement arranged =
      schedule::arrange(algorithm, shape, root, rank, schedule::Direction::FromRoot);
  contents.level = level;
  contents.order = std::move(arranged.order);
  contents.region_bytes = blocks_by_place(shape, level, contents.order, root);
  for (int place = 0; place < count; ++place) {
    const int participant = contents.order[static_cast<std::size_t>(place)];
    if (holds) contents.held.push_back(place);
    if (participant != mine && !holds) continue;
    std::uint64_t offset = 0;
    for (const int taker : ranks_of(shape, level, participant)) {
      if (taker == root) continue;
      const std::uint64_t bytes = shape.bytes[static_cast<std::size_t>(taker)];
      const std::uint64_t from = shape.receive_offsets[static_cast<std::size_t>(taker)];
      if (holds) contents.given.push_back({root, place, offset, from, bytes});
      if (taker == rank) contents.taken.push_back({rank, place, offset, 0, bytes});
      offset += bytes;
    }
  }
  contents.keeps = rank == root;
  contents.kept_from = shape.receive_offsets[static_cast<std::size_t>(root)];
  contents.kept_bytes = shape.bytes[static_cast<std::size_t>(root)];
  return schedule::lower_contents(arranged.exchange, contents, shape, rank);
}

std::uint64_t slot_bytes(const Algorithm& algorithm, const schedule::Shape& shape,
                         int largest_node) {
  const auto order = schedule::order_from(0, participants(shape, algorithm.level));
  // Whatever the root is, so without leaving its block out.
  return schedule::contents_slot_bytes(blocks_by_place(shape, algorithm.level, order, -1),
                                       algorithm.level, largest_node);
}

}  // namespace allrail::coll::scatter
