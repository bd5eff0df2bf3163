// Scatter down a spanning binomial tree for k ports (Qian and Afsahi 2008, section 5.1.1).
//
// The gather of coll/gather/gather_binomial.cpp backwards: whoever has the blocks of a subtree
// sends those of its k largest parts to their tops. Steps: w = ceil(log_{k+1} n). Blocks per port
// at powers of K = k + 1: (n-1)/k. T, at powers of K: w*ts + (n-1)/k*m*tau. Any n.
#include "coll/scatter/scatter.hpp"
#include "coll/schedule/tree.hpp"

namespace allrail::coll::scatter {

schedule::Exchange binomial(int participants, int me, int ports) {
  return schedule::mirrored(schedule::gather_up_tree(participants, me, ports));
}

}  // namespace allrail::coll::scatter
