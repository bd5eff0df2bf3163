#include "coll/scatter/scatter.hpp"

#include <array>

#include "coll/schedule/named.hpp"

namespace allrail::coll::scatter {
namespace {

using schedule::Join;
using schedule::Level;

constexpr std::array<Algorithm, 6> kAlgorithms{{
    {"direct", "the root sends every rank its block, k at a time", Level::Flat, direct, true},
    {"binomial", "down a k-port tree of ranks: log steps", Level::Flat, binomial},
    {"smp-direct", "the root's node sends every node its blocks, k at a time", Level::Smp, direct,
     true},
    {"smp-binomial", "down a k-port tree of nodes: log steps", Level::Smp, binomial},
    {"topology", "down a tree of switches, then down one of the nodes of every leaf switch",
     Level::Smp, binomial, false, Join::Binomial},
    {"topology-direct", "the root's node to the first one on every leaf switch, these to theirs",
     Level::Smp, direct, false, Join::Direct},
}};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm* find_algorithm(std::string_view name) {
  return schedule::find_named(algorithms(), name);
}

schedule::Schedule make_schedule(const Algorithm& algorithm, const schedule::Shape& shape, int root,
                                 int rank) {
  return schedule::rooted_schedule(algorithm, shape, root, rank, schedule::Direction::FromRoot);
}

}  // namespace allrail::coll::scatter
