#include "coll/selection.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

#include "coll/selection_sizes.hpp"

namespace allrail::coll {
namespace {

constexpr int kAnyCount = std::numeric_limits<int>::max();

// How many peers a step sends to: one, so that no two senders meet in front of a receiver, or as
// many as there are rails.
enum class Ports { One, Rails };
// Fast, NotFast: only where rails are, or are not, faster than the processors behind them.
enum class Nodes { Any, NotFast, One, TwoOrFour, PowerOfTwo, FastPowerOfTwo };

struct Row {
  std::uint64_t most_bytes_per_node;  // the block that a node sends
  bool zero_copy;                     // only for blocks that go straight to user memory
  Nodes nodes;
  int most_ranks_per_node;
  const char* algorithm;
  Ports ports;
  const char* reason;
  bool for_blocks_that_differ = false;
};

// First match wins. Sizes are those of a node's whole contribution, since that is what crosses the
// rails. Measured on four and eight hosts with two rails (docs/measured/findings.md, which has no
// figures of hosts that are no power of two): rails are striped, so a second port adds no
// bandwidth, and with several ports the blocks of several senders queue up in front of one receiver
// while the way to another is idle.
constexpr Row kTable[] = {
    {kAnySize, false, Nodes::One, kAnyCount, "smp-direct", Ports::Rails,
     "one node: no rail is needed"},
    {kAnySize, false, Nodes::NotFast, kAnyCount, "smp-ring-chain", Ports::One,
     "blocks differ much: what single ones have beyond the others goes in chains", true},
    {64 * kKibi, false, Nodes::PowerOfTwo, kAnyCount, "smp-recursive-doubling", Ports::One,
     "small blocks: fewest messages, and every pair of nodes answers each other"},
    {256 * kKibi, false, Nodes::TwoOrFour, 1, "smp-recursive-doubling", Ports::One,
     "medium blocks, few nodes of one rank: fewest messages"},
    {48 * kKibi, false, Nodes::Any, kAnyCount, "smp-bruck", Ports::One,
     "small blocks, no power of two: fewest messages"},
    {kAnySize, true, Nodes::Any, 1, "ring", Ports::One,
     "large blocks, one rank per node: straight between user buffers, one sender per receiver"},
    {512 * kKibi, false, Nodes::FastPowerOfTwo, kAnyCount, "smp-recursive-doubling", Ports::One,
     "medium blocks, rails faster than the processors: fewest messages and wake-ups"},
    {kAnySize, false, Nodes::Any, kAnyCount, "smp-ring", Ports::One,
     "large blocks: every block crosses once, one sender per receiver"},
};

bool fits(Nodes nodes, const SelectionFacts& facts) {
  const bool is_power_of_two = std::has_single_bit(static_cast<unsigned>(facts.nodes));
  switch (nodes) {
    case Nodes::One:
      return facts.nodes == 1;
    case Nodes::TwoOrFour:
      return facts.nodes == 2 || facts.nodes == 4;
    case Nodes::PowerOfTwo:
      return is_power_of_two;
    case Nodes::FastPowerOfTwo:
      return is_power_of_two && facts.pace == transport::Pace::Fast;
    case Nodes::NotFast:
      return facts.pace != transport::Pace::Fast;
    case Nodes::Any:
      break;
  }
  return true;
}

int ports_of(const Row& row, const SelectionFacts& facts) {
  return row.ports == Ports::One ? 1 : std::max(1, facts.rails);
}

int leaders_for(const SelectionFacts& facts, std::uint64_t per_node) {
  if (facts.nodes == 1) return 1;
  const auto wanted = static_cast<std::uint64_t>(std::max(1, facts.natural_leaders));
  return static_cast<int>(std::clamp<std::uint64_t>(per_node / kBytesPerLeader, 1, wanted));
}

}  // namespace

std::uint64_t single_copy_threshold(std::span<const SingleCopyTrial> trials) noexcept {
  if (trials.empty()) return kSingleCopyThresholdBytes;
  std::uint64_t threshold_bytes = 4 * trials.back().bytes;
  // What reading from a size on costs or saves, in parts of a call of each size tried.
  double least = 0;
  double sum = 0;
  for (std::size_t i = trials.size(); i-- > 0;) {
    const auto read_ns = static_cast<double>(trials[i].read_ns);
    const auto copied_ns = static_cast<double>(trials[i].copied_ns);
    sum += (read_ns - copied_ns) / std::max({read_ns, copied_ns, 1.0});
    if (sum >= least) continue;
    least = sum;
    threshold_bytes = trials[i].bytes;
  }
  return threshold_bytes;
}

Selection select_allgather(const SelectionFacts& facts) {
  const std::uint64_t per_node =
      facts.bytes_per_rank * static_cast<std::uint64_t>(facts.largest_node);
  Selection selection;
  for (const Row& row : kTable) {
    if (per_node > row.most_bytes_per_node || !fits(row.nodes, facts) ||
        (row.for_blocks_that_differ && !facts.blocks_differ) ||
        (row.zero_copy && facts.bytes_per_rank < facts.zero_copy_threshold_bytes) ||
        facts.largest_node > row.most_ranks_per_node) {
      continue;
    }
    selection.algorithm = row.algorithm;
    selection.reason = row.reason;
    selection.ports = ports_of(row, facts);
    selection.leaders = leaders_for(facts, per_node);
    return selection;
  }
  return selection;
}

}  // namespace allrail::coll
