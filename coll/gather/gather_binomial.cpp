// Gather up a spanning binomial tree for k ports (Qian and Afsahi 2008, section 5.1.1).
//
// Participants are numbered to base K = k + 1. In step i those with i trailing zero digits, and a
// digit i that is not zero, send what their subtree gathered (up to K^i blocks) to the participant
// with that digit zero. Steps: w = ceil(log_K n). Blocks per port at powers of K: (n-1)/k, which
// the root's ports receive. T, at powers of K: w*ts + (n-1)/k*m*tau. Any n: a subtree is what there
// is of it.
#include "coll/gather/gather.hpp"
#include "coll/schedule/tree.hpp"

namespace allrail::coll::gather {

schedule::Exchange binomial(int participants, int me, int ports) {
  return schedule::gather_up_tree(participants, me, ports);
}

}  // namespace allrail::coll::gather
