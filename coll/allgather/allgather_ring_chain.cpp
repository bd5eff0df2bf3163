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
// level, and E(L) what all ranks have above it. With one rank per node both are straight lines
// between the sizes of blocks, so the least is at one of these or at 0; with several per node, what
// nodes have in all are tried, too. With one rank per node and L the smallest block it is all that
// the node with the least must receive, so no exchange needs fewer. Steps: n - 1, s for the s
// pieces of every chain, and n - 2 until the last one is over. Any n.
#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <vector>

#include "coll/allgather/allgather.hpp"
#include "coll/schedule/chain.hpp"

namespace allrail::coll::allgather {
namespace {

// A plan keeps a recipe and a schedule for each.
constexpr std::size_t kMostChains = 32;

/// In bytes that a port could carry in that time.
struct Cost {
  double alone = 0;   // of a call by itself, with its start-ups
  double in_row = 0;  // of each of many that follow each other: a port is busy for so long
};

Cost cost_at(std::uint64_t level, const schedule::NodeMap& map,
             std::span<const std::uint64_t> bytes) {
  std::uint64_t largest = 0;
  schedule::ChainCost chains;
  std::uint64_t above = 0;
  for (const std::vector<int>& ranks : map.ranks_of) {
    std::uint64_t below = 0;
    for (const int rank : ranks) {
      const std::uint64_t block = bytes[static_cast<std::size_t>(rank)];
      below += std::min(block, level);
      if (block <= level) continue;
      const auto chain = schedule::chain_cost(block - level, map.nodes());
      chains = {chains.steps + chain.steps, std::max(chains.wait, chain.wait)};
      above += block - level;
    }
    largest = std::max(largest, below);
  }
  const double ring = (map.nodes() - 1) * static_cast<double>(largest);
  const double startups = level == 0 ? 0 : (map.nodes() - 1) * schedule::kStartupBytes;
  return {ring + startups + chains.steps + chains.wait, ring + static_cast<double>(above)};
}

/// The least of both by algorithms that cut nothing: by a ring, or in a logarithm of steps, each of
/// which carries all there is at most.
Cost uncut_cost(const schedule::NodeMap& map, std::span<const std::uint64_t> bytes) {
  const Cost ring = cost_at(std::ranges::max(bytes), map, bytes);
  const auto all = static_cast<double>(std::accumulate(bytes.begin(), bytes.end(), 0ULL));
  const auto steps = static_cast<int>(std::bit_width(static_cast<unsigned>(map.nodes() - 1)));
  return {std::min(ring.alone, steps * (schedule::kStartupBytes + all)),
          std::min(ring.in_row, steps * all)};
}

/// From the longest block down: sizes of blocks and of what nodes have, then 0, but for those with
/// more chains above them than there may be. Of sizes within a tenth the largest stands for all.
std::vector<std::uint64_t> possible_levels(const schedule::NodeMap& map,
                                           std::span<const std::uint64_t> bytes) {
  std::vector<std::uint64_t> sorted(bytes.begin(), bytes.end());
  std::ranges::sort(sorted, std::ranges::greater());
  const std::uint64_t largest = sorted.front();
  const std::uint64_t least = sorted.size() > kMostChains ? sorted[kMostChains] : 0;
  for (const std::vector<int>& ranks : map.ranks_of) {
    std::uint64_t all = 0;
    for (const int rank : ranks) all += bytes[static_cast<std::size_t>(rank)];
    sorted.push_back(all);
  }
  sorted.push_back(least);
  std::ranges::sort(sorted, std::ranges::greater());
  std::vector<std::uint64_t> levels;
  for (const std::uint64_t level : sorted) {
    if (level > largest || level < least) continue;
    const bool is_last = level == least && (levels.empty() || levels.back() != least);
    if (levels.empty() || level < levels.back() - levels.back() / 10 || is_last) {
      levels.push_back(level);
    }
  }
  return levels;
}

}  // namespace

RingChainCut cut_for_ring_chain(const schedule::NodeMap& map,
                                std::span<const std::uint64_t> bytes) {
  const std::uint64_t longest = std::ranges::max(bytes);
  if (longest == 0 || map.nodes() == 1) return {longest, 1};
  const Cost uncut = uncut_cost(map, bytes);
  RingChainCut best{0, std::numeric_limits<double>::infinity()};
  for (const std::uint64_t level : possible_levels(map, bytes)) {
    const Cost cost = cost_at(level, map, bytes);
    const double both = (cost.alone / uncut.alone + cost.in_row / uncut.in_row) / 2;
    if (both < best.cost) best = {level, both};
  }
  return best;
}

}  // namespace allrail::coll::allgather
