// Ring allgather with k fixed neighbours (the k = 1 form is the common single-port ring; the rings
// of other strides are ours, so that more ports are used).
//
// A block is at distance d from whoever is d places after its owner. The distances 1 to n - 1 are
// cut into k arcs as even as can be, one per port, and every port has one neighbour for good. The
// first arc is the forward ring (to p + 1, distances upwards), the last one the backward ring (to p
// - 1, distances n - 1 downwards): with k = 2 each carries its blocks half way round. An arc in
// between is served by chords of the stride of its middle: the chord brings the block at distance d
// of the sender to distance d + stride, first d = 0, then 1, -1, 2, -2, ..., just after the two
// rings brought them to the sender. Steps: ceil((n-1)/k). Blocks per port: ceil((n-1)/k). T =
// ceil((n-1)/k) * (ts + m*tau). Any n.
#include <algorithm>

#include "coll/allgather/allgather.hpp"

namespace allrail::coll::allgather {
namespace {

struct Arc {
  int stride;  // the neighbour is me + stride
  int length;  // blocks to carry
  enum class Order { Up, Down, Around } order;

  /// At the sender, how far the block of round `i` is from its owner.
  int distance(int i) const {
    switch (order) {
      case Order::Up:
        return i;
      case Order::Down:
        return -i;
      case Order::Around:
        return i % 2 == 1 ? (i + 1) / 2 : -i / 2;
    }
    return 0;
  }
};

std::vector<Arc> arcs_of(int participants, int ports) {
  const int count = std::min(ports, participants - 1);
  std::vector<Arc> arcs;
  int start = 1;
  for (int arc = 0; arc < count; ++arc) {
    const int length = (participants - 1) / count + (arc < (participants - 1) % count ? 1 : 0);
    if (arc == 0) {
      arcs.push_back({1, length, Arc::Order::Up});
    } else if (arc == count - 1) {
      arcs.push_back({participants - 1, length, Arc::Order::Down});
    } else {
      // The middle such that the distances -floor(j/2) to ceil(j/2) around it, j = length - 1, fit.
      arcs.push_back({start + (length - 1) / 2, length, Arc::Order::Around});
    }
    start += length;
  }
  return arcs;
}

}  // namespace

schedule::Exchange ring(int participants, int me, int ports) {
  schedule::Exchange exchange;
  if (participants == 1) {
    return exchange;
  }
  const std::vector<Arc> arcs = arcs_of(participants, ports);
  const auto wrap = [&](int place) { return (place % participants + participants) % participants; };
  for (int i = 0; i < arcs.front().length; ++i) {  // no arc is longer than the first
    schedule::Round round;
    for (const Arc& arc : arcs) {
      if (i < arc.length) {
        const int from = wrap(me - arc.stride);
        round.puts.push_back({wrap(me + arc.stride), wrap(me - arc.distance(i)), 1});
        round.awaits.push_back({from, wrap(from - arc.distance(i)), 1});
      }
    }
    exchange.rounds.push_back(std::move(round));
  }
  return exchange;
}

}  // namespace allrail::coll::allgather
