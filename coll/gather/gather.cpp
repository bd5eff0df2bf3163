#include "coll/gather/gather.hpp"

#include <array>

#include "coll/schedule/named.hpp"

namespace allrail::coll::gather {
namespace {

using schedule::Join;
using schedule::Level;

constexpr std::array<Algorithm, 6> kAlgorithms{{
    {"direct", "every rank sends its block to the root, k at a time", Level::Flat, direct, true},
    {"binomial", "up a k-port tree of ranks: log steps", Level::Flat, binomial},
    {"smp-direct", "every node sends its blocks to the root's node, k at a time", Level::Smp,
     direct, true},
    {"smp-binomial", "up a k-port tree of nodes: log steps", Level::Smp, binomial},
    {"topology", "up a tree of the nodes of every leaf switch, then up one of switches", Level::Smp,
     binomial, false, Join::Binomial},
    {"topology-direct", "every node to the first one on its leaf switch, these to the root's",
     Level::Smp, direct, false, Join::Direct},
}};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm* find_algorithm(std::string_view name) {
  return schedule::find_named(algorithms(), name);
}

schedule::Schedule make_schedule(const Algorithm& algorithm, const schedule::Shape& shape, int root,
                                 int rank) {
  return schedule::rooted_schedule(algorithm, shape, root, rank, schedule::Direction::ToRoot);
}

}  // namespace allrail::coll::gather
