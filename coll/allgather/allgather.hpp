#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "coll/schedule/exchange.hpp"
#include "coll/schedule/lower.hpp"
#include "coll/schedule/schedule.hpp"
#include "coll/schedule/shape.hpp"

// The allgather algorithms and the table that names them.
namespace allrail::coll::allgather {

struct Algorithm {
  std::string_view name;
  std::string_view description;
  schedule::Level level;
  schedule::ExchangeFunction exchange;
  bool zero_copy;  // has a zero-copy schedule: flat with absolute placement
  schedule::Gather gather = schedule::Gather::Copies;  // of MultiLeader
};

std::span<const Algorithm> algorithms();
/// nullptr when there is no algorithm of this name.
const Algorithm* find_algorithm(std::string_view name);
/// The one over nodes with the same exchange; nullptr when there is none.
const Algorithm* same_over_nodes(const Algorithm& algorithm);

schedule::Schedule make_schedule(const Algorithm& algorithm, const schedule::Shape& shape,
                                 int rank);
/// Straight into user memory, see lower_flat_zero_copy(). Only where algorithm.zero_copy.
schedule::Schedule make_zero_copy_schedule(const Algorithm& algorithm, const schedule::Shape& shape,
                                           int rank, std::uint64_t most_put_bytes);

/// Into memory that the ranks of a node share, see lower_node_shared() and
/// lower_node_shared_copied(). Smp algorithms only, and straight only those with absolute
/// placement.
schedule::Schedule make_node_shared_schedule(const Algorithm& algorithm,
                                             const schedule::Shape& shape, int rank,
                                             std::uint64_t most_put_bytes);
schedule::Schedule make_copied_node_shared_schedule(const Algorithm& algorithm,
                                                    const schedule::Shape& shape, int rank);
/// Whether make_node_shared_schedule() can be called.
bool is_straight_between_nodes(const Algorithm& algorithm);

/// Where the blocks of a call, by rank, are cut for a ring and chains (allgather_ring_chain.cpp):
/// at the longest one where no cut makes it faster.
struct RingChainCut {
  std::uint64_t level_bytes;  // of every block: below it, it goes around the ring
  // In parts of what the best algorithm costs that cuts nothing, by bytes and steps: the mean of
  // a call alone and of one of many in a row.
  double cost;
};
RingChainCut cut_for_ring_chain(const schedule::NodeMap& map, std::span<const std::uint64_t> bytes);
inline constexpr std::string_view kRingChain = "smp-ring-chain";

// One file each.
schedule::Exchange direct(int participants, int me, int ports);
schedule::Exchange bruck(int participants, int me, int ports);
schedule::Exchange recursive_doubling(int participants, int me, int ports);
schedule::Exchange ring(int participants, int me, int ports);
schedule::Exchange gather_broadcast(int participants, int me, int ports);
schedule::Exchange direct_gather_broadcast(int participants, int me, int ports);

}  // namespace allrail::coll::allgather
