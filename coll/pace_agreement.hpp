// Whether the rails of a communicator are faster than the processors behind them: every node sees
// it of its own, and the barriers of the communicator spread it until all nodes know the same of
// all. Pure: the engine puts the words into its barriers.
#pragma once

#include <cstdint>

#include "transport/pace.hpp"

namespace allrail::coll {

/// A barrier brings to a node what some others say, those it has a signal from, and not all. So
/// what was said in one is passed on in the next ones, a level higher each time: a word has two
/// bits for every level, whether anybody said that its rails are slow and whether anybody said that
/// they are fast. A barrier's signals lead from any node to any other in as many hops as it has
/// rounds, one hop in each of so many barriers (coll/barrier/barrier_dissemination.cpp), so at the
/// level of the last round every node has what all nodes said in one barrier.
class PaceAgreement {
 public:
  /// What this node's barrier that begins now says, if this is what it sees of its rails.
  std::uint32_t begin(transport::Pace mine) noexcept;
  /// What a signal that arrived in that barrier said.
  void heard(std::uint32_t word) noexcept { heard_ |= word; }
  /// Once the last barrier has ended, and before the next one begins: what all nodes said some
  /// barriers ago, Slow if anybody did. The same on all nodes. `rounds`: of a barrier.
  transport::Pace agreed(int rounds) const noexcept;

 private:
  std::uint32_t heard_ = 0;  // in the last barrier, with what this node said itself
};

}  // namespace allrail::coll
