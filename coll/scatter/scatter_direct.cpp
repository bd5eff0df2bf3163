// Direct scatter (Qian and Afsahi 2008, section 5.1.1).
//
// The root sends everybody its block, k at a time. Steps: ceil((n-1)/k), one block per port each. T
// = ceil((n-1)/k) * (ts + m*tau). Any n.
#include "coll/scatter/scatter.hpp"
#include "coll/schedule/tree.hpp"

namespace allrail::coll::scatter {

schedule::Exchange direct(int participants, int me, int ports) {
  return schedule::mirrored(schedule::gather_at_root(participants, me, ports));
}

}  // namespace allrail::coll::scatter
