#include "coll/alltoall/alltoall.hpp"

#include <array>

#include "coll/schedule/named.hpp"

namespace allrail::coll::alltoall {
namespace {

using schedule::Level;

constexpr std::array<Algorithm, 6> kAlgorithms{{
    {"direct", "every rank sends every other its block, k at a time", Level::Flat, direct, true},
    {"bruck", "log steps for any number of ranks, blocks travel together", Level::Flat, bruck,
     false},
    {"recursive-doubling", "log steps: groups of k+1 exchange, digit by digit", Level::Flat,
     recursive_doubling, false},
    {"smp-direct", "every node sends every other its blocks, k at a time", Level::Smp, direct,
     true},
    {"smp-bruck", "log steps among leaders for any number of nodes", Level::Smp, bruck, false},
    {"smp-recursive-doubling", "log steps among leaders in groups of k+1 nodes", Level::Smp,
     recursive_doubling, false},
}};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm* find_algorithm(std::string_view name) {
  return schedule::find_named(algorithms(), name);
}

schedule::Schedule make_schedule(const Algorithm& algorithm, const schedule::PairShape& shape,
                                 int rank) {
  return schedule::lower_pairs(algorithm.exchange, shape, algorithm.level, rank);
}

bool goes_straight(const schedule::PairShape& shape, std::uint64_t threshold_bytes) {
  const schedule::NodeMap& map = shape.map;
  if (map.nodes() == 1 || !shape.matrix.empty() || !ranks_may_talk(map)) return false;
  return shape.uniform_bytes >= (map.largest_node == 1 ? threshold_bytes : threshold_bytes / 2);
}

schedule::Schedule make_zero_copy_schedule(const Algorithm& algorithm,
                                           const schedule::PairShape& shape, int rank) {
  return schedule::lower_pairs_zero_copy(algorithm.exchange, shape, algorithm.level, rank);
}

}  // namespace allrail::coll::alltoall
