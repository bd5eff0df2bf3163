#include <limits>

#include "coll/selection.hpp"

namespace allrail::coll {
namespace {

constexpr std::uint64_t kAnySize = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kKibi = 1024;

// How many peers a step sends to: one, or as many as there are nodes to send to.
enum class Ports { One, AllNodes };

struct Row {
  Operation operation;
  std::uint64_t most_bytes;  // of the largest block
  bool one_node;
  const char* algorithm;
  Ports ports;
  const char* reason;
};

// First match wins; v-forms are found under the collective's plain name.
constexpr Row kTable[] = {
    {Operation::Gather, kAnySize, true, "smp-direct", Ports::One, "one node: no rail is needed"},
    {Operation::Gather, 1 * kKibi, false, "smp-binomial", Ports::One,
     "small blocks: the root awaits few messages"},
    {Operation::Gather, kAnySize, false, "smp-direct", Ports::AllNodes,
     "every block crosses once, and the root's rails never wait for a forwarder"},
    {Operation::Scatter, kAnySize, true, "smp-direct", Ports::One, "one node: no rail is needed"},
    {Operation::Scatter, 1 * kKibi, false, "smp-binomial", Ports::One,
     "small blocks: the root sends few messages"},
    {Operation::Scatter, kAnySize, false, "smp-direct", Ports::One,
     "every block crosses once, in the order in which the root has them"},
    {Operation::Broadcast, kAnySize, true, "smp-binomial", Ports::One,
     "one node: no rail is needed"},
    {Operation::Broadcast, 32 * kKibi, false, "smp-binomial", Ports::One,
     "small data: fewest steps"},
    {Operation::Broadcast, kAnySize, false, "smp-chain", Ports::One,
     "large data: every rail carries it once, all of them at the same time"},
    {Operation::Alltoall, kAnySize, true, "smp-direct", Ports::One, "one node: no rail is needed"},
    {Operation::Alltoall, 256, false, "smp-bruck", Ports::One, "small blocks: fewest messages"},
    {Operation::Alltoall, kAnySize, false, "smp-direct", Ports::One,
     "every block crosses once, one sender per receiver"},
};

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

}  // namespace

Selection select_rooted(Operation operation, const SelectionFacts& facts) {
  Selection selection;
  for (const Row& row : kTable) {
    if (row.operation != plain(operation) || facts.bytes_per_rank > row.most_bytes ||
        (row.one_node && facts.nodes > 1)) {
      continue;
    }
    selection.algorithm = row.algorithm;
    selection.reason = row.reason;
    selection.ports = row.ports == Ports::One || facts.nodes == 1 ? 1 : facts.nodes - 1;
    return selection;
  }
  return selection;
}

}  // namespace allrail::coll
