#include "coll/gather/gather.hpp"

#include <array>
#include <utility>

#include "coll/schedule/named.hpp"

namespace allrail::coll::gather {
namespace {

using schedule::Join;
using schedule::Level;

constexpr std::array<Algorithm, 6> kAlgorithms{{
    {"direct", "every rank sends its block to the root, k at a time", Level::Flat, direct},
    {"binomial", "up a k-port tree of ranks: log steps", Level::Flat, binomial},
    {"smp-direct", "every node sends its blocks to the root's node, k at a time", Level::Smp,
     direct},
    {"smp-binomial", "up a k-port tree of nodes: log steps", Level::Smp, binomial},
    {"topology", "up a tree of the nodes of every leaf switch, then up one of switches", Level::Smp,
     binomial, Join::Binomial},
    {"topology-direct", "every node to the first one on its leaf switch, these to the root's",
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
  schedule::Contents contents;
  schedule::Arrangement arranged =
      schedule::arrange(algorithm, shape, root, rank, schedule::Direction::ToRoot);
  contents.level = level;
  contents.order = std::move(arranged.order);
  contents.region_bytes = blocks_by_place(shape, level, contents.order, root);
  for (int place = 0; place < count; ++place) {
    const int participant = contents.order[static_cast<std::size_t>(place)];
    if (participant == mine) contents.held = {place};
    if (participant != mine && rank != root) continue;
    std::uint64_t offset = 0;
    for (const int giver : ranks_of(shape, level, participant)) {
      if (giver == root) continue;
      const std::uint64_t bytes = shape.bytes[static_cast<std::size_t>(giver)];
      if (participant == mine) contents.given.push_back({giver, place, offset, 0, bytes});
      if (rank == root) {
        const std::uint64_t to = shape.receive_offsets[static_cast<std::size_t>(giver)];
        contents.taken.push_back({rank, place, offset, to, bytes});
      }
      offset += bytes;
    }
  }
  contents.keeps = rank == root;
  contents.kept_to = shape.receive_offsets[static_cast<std::size_t>(root)];
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

}  // namespace allrail::coll::gather
