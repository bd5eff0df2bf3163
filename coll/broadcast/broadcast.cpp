#include "coll/broadcast/broadcast.hpp"

#include <algorithm>
#include <array>

#include "coll/schedule/chain.hpp"
#include "coll/schedule/named.hpp"

namespace allrail::coll::broadcast {
namespace {

using schedule::Level;

int one_piece(const schedule::Shape& /*shape*/, std::uint64_t /*bytes*/, int /*participants*/) {
  return 1;
}
int piece_per_participant(const schedule::Shape& /*shape*/, std::uint64_t /*bytes*/,
                          int participants) {
  return participants;
}
int chain_pieces(const schedule::Shape& shape, std::uint64_t bytes, int participants) {
  const std::uint64_t segment = shape.segment_bytes;
  const std::uint64_t pieces = segment == 0 ? schedule::best_chain_pieces(bytes, participants)
                                            : bytes / segment + (bytes % segment > 0 ? 1 : 0);
  return static_cast<int>(std::clamp<std::uint64_t>(pieces, 1, schedule::kMostChainPieces));
}

constexpr std::array<Algorithm, 6> kAlgorithms{{
    {"binomial", "down a k-port tree of ranks: log steps", Level::Flat, binomial, one_piece},
    {"chain", "piece by piece from rank to rank, node by node", Level::Flat, chain, chain_pieces,
     Order::NodeByNode},
    {"scatter-allgather", "every rank gets a piece, then pieces go around a ring", Level::Flat,
     scatter_allgather, piece_per_participant},
    {"smp-binomial", "down a k-port tree of nodes: log steps", Level::Smp, binomial, one_piece},
    {"smp-chain", "piece by piece from node to node", Level::Smp, chain, chain_pieces},
    {"smp-scatter-allgather", "every node gets a piece, then pieces go around a ring", Level::Smp,
     scatter_allgather, piece_per_participant},
}};

/// Whole cache lines where there are so many.
std::vector<std::uint64_t> cut(std::uint64_t bytes, int pieces) {
  const auto count = static_cast<std::uint64_t>(pieces);
  const std::uint64_t even = (bytes + count - 1) / count;
  const std::uint64_t each = schedule::padded(even);
  std::vector<std::uint64_t> sizes;
  sizes.reserve(count);
  for (std::uint64_t piece = 0; piece < count; ++piece) {
    sizes.push_back(std::min(each, bytes - std::min(bytes, piece * each)));
  }
  return sizes;
}

std::vector<std::uint64_t> pieces_of(const Algorithm& algorithm, const schedule::Shape& shape,
                                     std::uint64_t bytes) {
  return cut(bytes, algorithm.pieces(shape, bytes, participants(shape, algorithm.level)));
}

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
  contents.level = level;
  contents.order = algorithm.order == Order::NodeByNode
                       ? schedule::ranks_node_by_node(shape, root)
                       : schedule::order_from(participant_of(shape, level, root), count);
  contents.region_bytes = pieces_of(algorithm, shape, shape.bytes[static_cast<std::size_t>(root)]);
  std::uint64_t offset = 0;
  const int pieces = static_cast<int>(contents.region_bytes.size());
  for (int piece = 0; piece < pieces; ++piece) {
    const std::uint64_t bytes = contents.region_bytes[static_cast<std::size_t>(piece)];
    if (holds) {
      contents.held.push_back(piece);
      contents.given.push_back({root, piece, 0, offset, bytes});
    }
    if (rank != root) contents.taken.push_back({rank, piece, 0, offset, bytes});
    offset += bytes;
  }
  const int place = schedule::place_of(contents.order, mine);
  return schedule::lower_contents(algorithm.exchange(count, place, shape.ports, pieces), contents,
                                  shape, rank);
}

std::uint64_t slot_bytes(const Algorithm& algorithm, const schedule::Shape& shape,
                         std::uint64_t bytes, int largest_node) {
  return schedule::contents_slot_bytes(pieces_of(algorithm, shape, bytes), algorithm.level,
                                       largest_node);
}

}  // namespace allrail::coll::broadcast
