#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "coll/schedule/contents.hpp"

// The broadcast algorithms and the table that names them.
namespace allrail::coll::broadcast {

/// How the participants follow each other behind the root's.
enum class Order : std::uint8_t {
  AsNumbered,
  NodeByNode,  // of ranks: a node is entered once, at the rank that is nearest to its rails
};

struct Algorithm {
  std::string_view name;
  std::string_view description;
  schedule::Level level;
  // Participant 0 is the root's and has all pieces, which are the blocks of the exchange.
  schedule::Exchange (*exchange)(int participants, int me, int ports, int pieces);
  // Into how many pieces so many bytes are cut.
  int (*pieces)(const schedule::Shape& shape, std::uint64_t bytes, int participants);
  Order order = Order::AsNumbered;
};

std::span<const Algorithm> algorithms();
/// nullptr when there is no algorithm of this name.
const Algorithm* find_algorithm(std::string_view name);

/// `root` gives its send buffer, shape.bytes[root] long; all others have it in their receive
/// buffer. The root's receive buffer is not touched.
schedule::Schedule make_schedule(const Algorithm& algorithm, const schedule::Shape& shape, int root,
                                 int rank);
/// Slot bytes of a node for so many bytes of data: the same on all ranks.
std::uint64_t slot_bytes(const Algorithm& algorithm, const schedule::Shape& shape,
                         std::uint64_t bytes, int largest_node);

// One file each.
schedule::Exchange binomial(int participants, int me, int ports, int pieces);
schedule::Exchange chain(int participants, int me, int ports, int pieces);
schedule::Exchange scatter_allgather(int participants, int me, int ports, int pieces);

}  // namespace allrail::coll::broadcast
