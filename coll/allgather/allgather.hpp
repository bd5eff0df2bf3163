#pragma once

#include <span>
#include <string_view>

#include "coll/schedule/exchange.hpp"
#include "coll/schedule/schedule.hpp"
#include "coll/schedule/shape.hpp"

// The allgather algorithms and the table that names them.
namespace allrail::coll::allgather {

enum class Level { Flat, Smp };  // participants are ranks, or nodes

struct Algorithm {
  std::string_view name;
  std::string_view description;
  Level level;
  schedule::ExchangeFunction exchange;
  bool zero_copy;  // has a zero-copy schedule: flat with absolute placement
};

std::span<const Algorithm> algorithms();
/// nullptr when there is no algorithm of this name.
const Algorithm* find_algorithm(std::string_view name);

schedule::Schedule make_schedule(const Algorithm& algorithm, const schedule::Shape& shape,
                                 int rank);
/// Straight into user memory, see lower_flat_zero_copy(). Only where algorithm.zero_copy.
schedule::Schedule make_zero_copy_schedule(const Algorithm& algorithm, const schedule::Shape& shape,
                                           int rank);

// One file each.
schedule::Exchange direct(int participants, int me, int ports);
schedule::Exchange bruck(int participants, int me, int ports);
schedule::Exchange recursive_doubling(int participants, int me, int ports);
schedule::Exchange ring(int participants, int me, int ports);
schedule::Exchange gather_broadcast(int participants, int me, int ports);
schedule::Exchange direct_gather_broadcast(int participants, int me, int ports);

}  // namespace allrail::coll::allgather
