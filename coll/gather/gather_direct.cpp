// Direct gather (Qian and Afsahi 2008, section 5.1.1).
//
// Everybody sends its block to the root, k of them at a time: in step i those numbered i*k + 1 to
// i*k + k. Steps: ceil((n-1)/k), one block per port each. T = ceil((n-1)/k) * (ts + m*tau). Any n.
#include "coll/gather/gather.hpp"
#include "coll/schedule/tree.hpp"

namespace allrail::coll::gather {

schedule::Exchange direct(int participants, int me, int ports) {
  return schedule::gather_at_root(participants, me, ports);
}

}  // namespace allrail::coll::gather
