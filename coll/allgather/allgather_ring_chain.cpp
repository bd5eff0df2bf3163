// Ring and chains, for blocks that differ much (ours; what it is made of is in allgather_ring.cpp
// and broadcast/broadcast_chain.cpp).
//
// Blocks are cut at a level L, the same for all. What lies below it goes around the ring of nodes,
// and what a rank has above it goes from node to node in a chain of its own, one chain behind the
// other. An exchange in which every node passes blocks on takes (n-1) times the longest one: with
// all bytes in one block its owner sends it n - 1 times, or n - 2 nodes wait for it in turn. A
// chain takes the bytes of its block once, at every node at the same time.
//
// Bytes per port: (n-1) * B(L) + E(L), where B(L) is what the node with the most has below the
// level, and E(L) what all ranks have above it. That is least at L = 0 or at the size of some
// block, since between two of them both terms are straight lines. With one rank per node and L the
// smallest block it is all that the node with the least must receive, so no exchange needs fewer.
// Steps: n - 1, s for the s pieces of every chain, and n - 2 until the last one is over. Any n.
#include <algorithm>
#include <vector>

#include "coll/allgather/allgather.hpp"
#include "coll/schedule/chain.hpp"

namespace allrail::coll::allgather {
namespace {

constexpr int kMostChains = 64;
constexpr std::size_t kMostLevels = 32;

/// In bytes that a port could carry in that time.
double cost_at(std::uint64_t level, const schedule::NodeMap& map,
               std::span<const std::uint64_t> bytes) {
  std::uint64_t largest = 0;
  schedule::ChainCost chains;
  for (const std::vector<int>& ranks : map.ranks_of) {
    std::uint64_t below = 0;
    for (const int rank : ranks) {
      const std::uint64_t block = bytes[static_cast<std::size_t>(rank)];
      below += std::min(block, level);
      if (block <= level) continue;
      const auto chain = schedule::chain_cost(block - level, map.nodes());
      chains = {chains.steps + chain.steps, std::max(chains.wait, chain.wait)};
    }
    largest = std::max(largest, below);
  }
  const double ring = level == 0 ? 0 : static_cast<double>(largest) + schedule::kStartupBytes;
  return (map.nodes() - 1) * ring + chains.steps + chains.wait;
}

/// 0 and the sizes of blocks, but for those with more chains above them than there may be.
std::vector<std::uint64_t> possible_levels(std::span<const std::uint64_t> bytes) {
  std::vector<std::uint64_t> levels(bytes.begin(), bytes.end());
  std::ranges::sort(levels, std::ranges::greater());
  if (levels.size() > kMostChains) {
    levels.resize(kMostChains + 1);
  } else {
    levels.push_back(0);
  }
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
  const std::size_t stride = (levels.size() + kMostLevels - 1) / kMostLevels;
  std::vector<std::uint64_t> some;
  for (std::size_t i = 0; i < levels.size(); i += stride) some.push_back(levels[i]);
  return some;
}

}  // namespace

RingChainCut cut_for_ring_chain(const schedule::NodeMap& map,
                                std::span<const std::uint64_t> bytes) {
  const std::vector<std::uint64_t> levels = possible_levels(bytes);
  const double uncut = cost_at(levels.front(), map, bytes);
  RingChainCut best{levels.front(), 1};
  for (const std::uint64_t level : levels) {
    const double cost = cost_at(level, map, bytes);
    if (cost < best.cost * uncut) best = {level, cost / uncut};
  }
  return best;
}

}  // namespace allrail::coll::allgather
