#include <algorithm>
#include <bit>

#include "coll/selection.hpp"
#include "coll/selection_sizes.hpp"

namespace allrail::coll {
namespace {

// How many peers a step sends to: one, as many as there are nodes to send to, that but no more than
// eight, or half of them, at least two and no more than eight.
enum class RootedPorts { One, AllNodes, UpTo8, HalfUpTo8 };

// On any nodes, on one alone, on up to four, eight or 16 of them, on a power of two of them, or one
// of up to eight, on up to four or a power of two whose rails are faster than the processors behind
// them, on up to four whose rails were seen to be slower, or only where several leaf switches have
// several nodes each.
enum class Where {
  Any,
  OneNode,
  UpTo4,
  FastUpTo4,
  SlowUpTo4,
  UpTo8,
  UpTo16,
  PowerOfTwo,
  PowerOfTwoUpTo8,
  FastPowerOfTwo,
  Leaves
};

struct RootedRow {
  Operation operation;
  std::uint64_t most_bytes;  // of the largest block
  Where where;
  const char* algorithm;
  RootedPorts ports;
  const char* reason;
};

// First match wins. Large blocks go straight to the root or from it on any switches: each crosses
// once then, and a node in between would only hold it up. V-forms are found under the collective's
// plain name.
constexpr RootedRow kRootedTable[] = {
    {Operation::Gather, kAnySize, Where::OneNode, "smp-direct", RootedPorts::One,
     "one node: no rail is needed"},
    {Operation::Gather, 1 * kKibi, Where::Leaves, "topology", RootedPorts::One,
     "small blocks, several leaf switches: one message crosses for each of them"},
    {Operation::Gather, 1 * kKibi, Where::UpTo16, "smp-direct", RootedPorts::AllNodes,
     "small blocks, few nodes: one step, and nobody waits for a forwarder"},
    {Operation::Gather, 1 * kKibi, Where::Any, "smp-binomial", RootedPorts::One,
     "small blocks: the root awaits few messages"},
    {Operation::Gather, kAnySize, Where::Any, "smp-direct", RootedPorts::AllNodes,
     "every block crosses once, and the root's rails never wait for a forwarder"},
    {Operation::Scatter, kAnySize, Where::OneNode, "smp-direct", RootedPorts::One,
     "one node: no rail is needed"},
    {Operation::Scatter, 1 * kKibi, Where::Leaves, "topology", RootedPorts::One,
     "small blocks, several leaf switches: one message crosses for each of them"},
    {Operation::Scatter, 1 * kKibi, Where::UpTo8, "smp-direct", RootedPorts::One,
     "small blocks, few nodes: nobody waits for a forwarder"},
    {Operation::Scatter, 1 * kKibi, Where::Any, "smp-binomial", RootedPorts::One,
     "small blocks: the root sends few messages"},
    {Operation::Scatter, kAnySize, Where::Any, "smp-direct", RootedPorts::One,
     "every block crosses once, in the order in which the root has them"},
    {Operation::Broadcast, kAnySize, Where::OneNode, "smp-binomial", RootedPorts::One,
     "one node: no rail is needed"},
    {Operation::Broadcast, 512, Where::UpTo4, "smp-binomial", RootedPorts::AllNodes,
     "small data, few nodes: one step"},
    {Operation::Broadcast, 32 * kKibi, Where::SlowUpTo4, "smp-chain", RootedPorts::One,
     "few nodes, rails slower than the processors: every rail carries it once"},
    {Operation::Broadcast, 1 * kKibi, Where::UpTo4, "smp-binomial", RootedPorts::AllNodes,
     "small data, few nodes: one step"},
    {Operation::Broadcast, 32 * kKibi, Where::Any, "smp-binomial", RootedPorts::One,
     "small data: fewest steps"},
    {Operation::Broadcast, 1024 * kKibi, Where::FastUpTo4, "smp-binomial", RootedPorts::One,
     "medium data, few nodes, rails faster than the processors: fewest messages and wake-ups"},
    {Operation::Broadcast, kAnySize, Where::Any, "smp-chain", RootedPorts::One,
     "large data: every rail carries it once, all of them at the same time"},
    {Operation::Alltoall, kAnySize, Where::OneNode, "smp-direct", RootedPorts::One,
     "one node: no rail is needed"},
    {Operation::Alltoall, 256, Where::PowerOfTwo, "smp-recursive-doubling", RootedPorts::One,
     "small blocks: fewest messages, and every pair of nodes answers each other"},
    {Operation::Alltoall, 256, Where::Any, "smp-bruck", RootedPorts::One,
     "small blocks, no power of two: fewest messages"},
    {Operation::Alltoall, 1 * kKibi, Where::PowerOfTwoUpTo8, "smp-recursive-doubling",
     RootedPorts::One, "small blocks, few nodes: fewest messages, though of more bytes"},
    {Operation::Alltoall, 4 * kKibi, Where::FastPowerOfTwo, "smp-recursive-doubling",
     RootedPorts::One, "rails faster than the processors: fewest messages, though of more bytes"},
    {Operation::Alltoall, 256 * kKibi, Where::Any, "smp-direct", RootedPorts::UpTo8,
     "every block crosses once, and rails go on while a late block is awaited"},
    {Operation::Alltoall, 2048 * kKibi, Where::Any, "smp-direct", RootedPorts::HalfUpTo8,
     "large blocks: each crosses once, and those of the first peers arrive while others leave"},
    {Operation::Alltoall, kAnySize, Where::Any, "smp-direct", RootedPorts::UpTo8,
     "every block crosses once, and rails go on while a late block is awaited"},
};

bool fits(Where where, const SelectionFacts& facts) {
  const bool is_power_of_two = std::has_single_bit(static_cast<unsigned>(facts.nodes));
  switch (where) {
    case Where::OneNode:
      return facts.nodes == 1;
    case Where::UpTo4:
      return facts.nodes <= 4;
    case Where::FastUpTo4:
      return facts.nodes <= 4 && facts.pace == transport::Pace::Fast;
    case Where::SlowUpTo4:
      return facts.nodes <= 4 && facts.pace == transport::Pace::Slow;
    case Where::UpTo8:
      return facts.nodes <= 8;
    case Where::UpTo16:
      return facts.nodes <= 16;
    case Where::PowerOfTwo:
      return is_power_of_two;
    case Where::PowerOfTwoUpTo8:
      return is_power_of_two && facts.nodes <= 8;
    case Where::FastPowerOfTwo:
      return is_power_of_two && facts.pace == transport::Pace::Fast;
    case Where::Leaves:
      return facts.shared_leaves > 1;
    case Where::Any:
      break;
  }
  return true;
}

Operation plain(Operation operation) {
  switch (operation) {
    case Operation::Gatherv:
      return Operation::Gather;
    case Operation::Scatterv:
      return Operation::Scatter;
    case Operation::Alltoallv:
      return Operation::Alltoall;
    default:
      return operation;
  }
}

int ports_of(RootedPorts ports, int peers) {
  switch (ports) {
    case RootedPorts::One:
      return 1;
    case RootedPorts::AllNodes:
      return peers;
    case RootedPorts::UpTo8:
      return std::min(peers, 8);
    case RootedPorts::HalfUpTo8:
      return std::min({std::max((peers + 1) / 2, 2), peers, 8});
  }
  return 1;
}

}  // namespace

Selection select_rooted(Operation operation, const SelectionFacts& facts) {
  Selection selection;
  for (const RootedRow& row : kRootedTable) {
    if (row.operation != plain(operation) || facts.bytes_per_rank > row.most_bytes ||
        !fits(row.where, facts)) {
      continue;
    }
    selection.algorithm = row.algorithm;
    selection.reason = row.reason;
    selection.ports = ports_of(row.ports, std::max(1, facts.nodes - 1));
    return selection;
  }
  return selection;
}

}  // namespace allrail::coll
