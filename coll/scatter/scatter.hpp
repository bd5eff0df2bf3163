#pragma once

#include <span>
#include <string_view>

#include "coll/schedule/rooted.hpp"

// The scatter algorithms and the table that names them: every gather backwards.
namespace allrail::coll::scatter {

/// Block i of the exchange is what the ranks at place i take.
using Algorithm = schedule::RootedAlgorithm;

std::span<const Algorithm> algorithms();
/// nullptr when there is no algorithm of this name.
const Algorithm* find_algorithm(std::string_view name);

/// `root` gives the block of rank r from shape.receive_offsets[r] of its send buffer; every rank
/// has its block at the start of its receive buffer.
schedule::Schedule make_schedule(const Algorithm& algorithm, const schedule::Shape& shape, int root,
                                 int rank);

// One file each.
schedule::Exchange direct(int participants, int me, int ports);
schedule::Exchange binomial(int participants, int me, int ports);

}  // namespace allrail::coll::scatter
