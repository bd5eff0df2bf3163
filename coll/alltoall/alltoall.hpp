#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "coll/schedule/pairs.hpp"

// The alltoall algorithms and the table that names them.
namespace allrail::coll::alltoall {

struct Algorithm {
  std::string_view name;
  std::string_view description;
  schedule::Level level;
  schedule::PairExchangeFunction exchange;
  bool zero_copy;  // has a zero-copy schedule: nobody sends blocks of others on
};

std::span<const Algorithm> algorithms();
/// nullptr when there is no algorithm of this name.
const Algorithm* find_algorithm(std::string_view name);

/// Rank r has its block for rank s at send_offsets[s] of its send buffer, and the block of s for it
/// at receive_offsets[s] of its receive buffer in the end.
schedule::Schedule make_schedule(const Algorithm& algorithm, const schedule::PairShape& shape,
                                 int rank);

/// Whether a call of this shape may go straight between user buffers: from blocks of so many bytes
/// on, or of half as many where nodes have several ranks, since through slots blocks would wait for
/// all ranks of both nodes. There each rank talks to all ranks of other nodes itself, so not where
/// these are many.
bool goes_straight(const schedule::PairShape& shape, std::uint64_t threshold_bytes);

/// Straight between user buffers, see lower_pairs_zero_copy(). Only where algorithm.zero_copy.
schedule::Schedule make_zero_copy_schedule(const Algorithm& algorithm,
                                           const schedule::PairShape& shape, int rank);

// One file each.
schedule::PairExchange direct(int participants, int me, int ports);
schedule::PairExchange bruck(int participants, int me, int ports);
schedule::PairExchange recursive_doubling(int participants, int me, int ports);

}  // namespace allrail::coll::alltoall
