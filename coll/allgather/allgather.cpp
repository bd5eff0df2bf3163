#include "coll/allgather/allgather.hpp"

#include <array>
#include <stdexcept>
#include <string>

#include "coll/schedule/lower.hpp"
#include "coll/schedule/named.hpp"

namespace allrail::coll::allgather {
namespace {

using schedule::Level;

constexpr std::array<Algorithm, 15> kAlgorithms{{
    {"direct", "every rank sends its block to every other, k at a time", Level::Flat, direct, true},
    {"bruck", "log steps for any number of ranks, blocks relative to the rank", Level::Flat, bruck,
     false},
    {"recursive-doubling", "log steps: groups of k+1 exchange all they have, then wrap around",
     Level::Flat, recursive_doubling, true},
    {"ring", "every rank passes blocks on to k fixed neighbours", Level::Flat, ring, true},
    {"smp-gather-broadcast", "gather to one node up a k-port tree, then broadcast down it",
     Level::Smp, gather_broadcast, false},
    {"smp-direct-gather-broadcast",
     "gather straight to one node, k at a time, then broadcast down a k-port tree", Level::Smp,
     direct_gather_broadcast, false},
    {"smp-direct", "every leader sends its group's blocks to every node, k at a time", Level::Smp,
     direct, false},
    {"smp-bruck", "log steps among leaders for any number of nodes", Level::Smp, bruck, false},
    {"smp-recursive-doubling", "log steps among leaders in groups of k+1 nodes", Level::Smp,
     recursive_doubling, false},
    {"smp-ring", "leaders pass blocks on to k fixed neighbour nodes", Level::Smp, ring, false},
    {kRingChain, "a ring of nodes, and chains of what single blocks have beyond others", Level::Smp,
     ring, false},
    {"smp-multi-leader-recursive-doubling",
     "all leaders of all nodes exchange, and each receives everything", Level::MultiLeader,
     recursive_doubling, false},
    {"smp-multi-leader-ring", "the same in a ring", Level::MultiLeader, ring, false},
    {"smp-multi-leader-recursive-doubling-point-to-point",
     "the same in groups of k+1, in groups of ranks first", Level::MultiLeader, recursive_doubling,
     false, schedule::Gather::Exchange},
    {"smp-multi-leader-ring-point-to-point", "the same in rings, in groups of ranks first",
     Level::MultiLeader, ring, false, schedule::Gather::Exchange},
}};

void check_is_over_nodes(const Algorithm& algorithm) {
  if (algorithm.level == Level::Smp) return;
  throw std::invalid_argument("allgather algorithm " + std::string(algorithm.name) +
                              " is not one over nodes");
}

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm* find_algorithm(std::string_view name) {
  return schedule::find_named(algorithms(), name);
}

const Algorithm* same_over_nodes(const Algorithm& algorithm) {
  for (const Algorithm& other : kAlgorithms) {
    if (other.level == Level::Smp && other.exchange == algorithm.exchange) return &other;
  }
  return nullptr;
}

schedule::Schedule make_schedule(const Algorithm& algorithm, const schedule::Shape& shape,
                                 int rank) {
  schedule::check_shape(shape, rank);
  if (algorithm.level == Level::Smp) {
    return schedule::lower_over_nodes(algorithm.exchange, shape, rank);
  }
  if (algorithm.level == Level::MultiLeader) {
    return schedule::lower_multi_leader(algorithm.exchange, shape, rank, algorithm.gather);
  }
  return schedule::lower_flat(algorithm.exchange(shape.ranks(), rank, shape.ports), shape, rank);
}

schedule::Schedule make_zero_copy_schedule(const Algorithm& algorithm, const schedule::Shape& shape,
                                           int rank, std::uint64_t most_put_bytes) {
  if (!algorithm.zero_copy) {
    throw std::invalid_argument("allgather algorithm " + std::string(algorithm.name) +
                                " cannot work without slot memory");
  }
  schedule::check_shape(shape, rank);
  return schedule::lower_flat_zero_copy(algorithm.exchange(shape.ranks(), rank, shape.ports), shape,
                                        rank, most_put_bytes);
}

schedule::Schedule make_node_shared_schedule(const Algorithm& algorithm,
                                             const schedule::Shape& shape, int rank,
                                             std::uint64_t most_put_bytes) {
  check_is_over_nodes(algorithm);
  return schedule::lower_node_shared(algorithm.exchange, shape, rank, most_put_bytes);
}

schedule::Schedule make_copied_node_shared_schedule(const Algorithm& algorithm,
                                                    const schedule::Shape& shape, int rank) {
  check_is_over_nodes(algorithm);
  return schedule::lower_node_shared_copied(algorithm.exchange, shape, rank);
}

bool is_straight_between_nodes(const Algorithm& algorithm) {
  return algorithm.level == Level::Smp &&
         algorithm.exchange(2, 0, 1).placement == schedule::Placement::Absolute;
}

}  // namespace allrail::coll::allgather
