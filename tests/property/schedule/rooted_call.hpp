#pragma once

#include <string>
#include <utility>
#include <vector>

#include "coll/alltoall/alltoall.hpp"
#include "coll/broadcast/broadcast.hpp"
#include "coll/gather/gather.hpp"
#include "coll/scatter/scatter.hpp"
#include "tests/property/schedule/random_shape.hpp"

// Calls with a root for the replay checker, with what they are for said once more from the outside.
namespace allrail::schedule::testing {

struct RootedCall {
  ReplayCall call;
  std::string name;
  std::uint64_t slot_bytes;  // that the plan would ask for on the largest node
};

inline int largest_node(const NodeMap& map) {
  int largest = 0;
  for (int node = 0; node < map.nodes(); ++node) largest = std::max(largest, map.node_size(node));
  return largest;
}

template <class Make>
std::vector<Schedule> schedules_of(const Shape& shape, const Make& make) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < shape.ranks(); ++rank) schedules.push_back(make(rank));
  return schedules;
}

inline std::uint64_t rooted_slot_bytes_of(const RootedAlgorithm& algorithm, const Shape& shape,
                                          bool straight) {
  const int largest = largest_node(shape.map);
  return straight ? rooted_straight_slot_bytes(largest, shape.bytes.front())
                  : rooted_slot_bytes(algorithm, shape, largest);
}

/// `straight`: between user buffers, without ready tokens.
inline RootedCall make_gather(const coll::gather::Algorithm& algorithm, Shape shape, int root,
                              bool straight = false) {
  Purpose purpose{shape.bytes, std::vector<std::vector<Received>>(shape.bytes.size())};
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    purpose.received[root].push_back({rank, 0, shape.receive_offsets[rank], shape.bytes[rank]});
  }
  auto schedules = schedules_of(shape, [&](int rank) {
    if (!straight) return coll::gather::make_schedule(algorithm, shape, root, rank);
    return rooted_zero_copy_schedule(algorithm, shape, root, rank, Direction::ToRoot);
  });
  const auto slot = rooted_slot_bytes_of(algorithm, shape, straight);
  return {{std::move(shape), std::move(schedules), std::move(purpose)},
          "gather " + std::string(algorithm.name),
          slot};
}

inline RootedCall make_scatter(const coll::scatter::Algorithm& algorithm, Shape shape, int root,
                               bool straight = false) {
  Purpose purpose{std::vector<std::uint64_t>(shape.bytes.size()), {}};
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    const std::uint64_t from = shape.receive_offsets[rank];
    purpose.send_bytes[root] = std::max(purpose.send_bytes[root], from + shape.bytes[rank]);
    purpose.received.push_back({{root, from, 0, shape.bytes[rank]}});
  }
  auto schedules = schedules_of(shape, [&](int rank) {
    if (!straight) return coll::scatter::make_schedule(algorithm, shape, root, rank);
    return rooted_zero_copy_schedule(algorithm, shape, root, rank, Direction::FromRoot);
  });
  const auto slot = rooted_slot_bytes_of(algorithm, shape, straight);
  return {{std::move(shape), std::move(schedules), std::move(purpose)},
          "scatter " + std::string(algorithm.name),
          slot};
}

inline RootedCall make_broadcast(const coll::broadcast::Algorithm& algorithm, Shape shape,
                                 int root) {
  Purpose purpose{std::vector<std::uint64_t>(shape.bytes.size()), {}};
  purpose.send_bytes[root] = shape.bytes[root];
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    purpose.received.push_back({});
    if (rank != root) purpose.received.back().push_back({root, 0, 0, shape.bytes[root]});
  }
  auto schedules = schedules_of(shape, [&](int rank) {
    return coll::broadcast::make_schedule(algorithm, shape, root, rank);
  });
  const auto slot =
      coll::broadcast::slot_bytes(algorithm, shape, shape.bytes[root], largest_node(shape.map));
  return {{std::move(shape), std::move(schedules), std::move(purpose)},
          "broadcast " + std::string(algorithm.name),
          slot};
}

/// Rank r has `bytes(r, s)` for rank s; blocks are packed in rank order on both sides.
template <class Bytes>
RootedCall make_alltoall(const coll::alltoall::Algorithm& algorithm, const Groups& groups,
                         int ports, const Bytes& bytes, bool zero_copy = false) {
  const int ranks = groups.ranks();
  PairShape shape;
  static_cast<Groups&>(shape) = groups;
  shape.ports = ports;
  std::vector<std::vector<std::uint64_t>> sends(ranks);
  std::vector<std::vector<std::uint64_t>> receives(ranks);
  Purpose purpose{std::vector<std::uint64_t>(ranks), std::vector<std::vector<Received>>(ranks)};
  std::vector<std::uint64_t> received(ranks);
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      const std::uint64_t one = bytes(from, to);
      if (zero_copy) {
        shape.uniform_bytes = one;
      } else {
        shape.matrix.push_back(one);
      }
      purpose.received[to].push_back({from, purpose.send_bytes[from], received[to], one});
      sends[from].push_back(purpose.send_bytes[from]);
      receives[to].push_back(received[to]);
      purpose.send_bytes[from] += one;
      received[to] += one;
    }
  }
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < ranks; ++rank) {
    shape.send_offsets = sends[rank];
    shape.receive_offsets = receives[rank];
    schedules.push_back(zero_copy ? coll::alltoall::make_zero_copy_schedule(algorithm, shape, rank)
                                  : coll::alltoall::make_schedule(algorithm, shape, rank));
  }
  const std::uint64_t slot =
      zero_copy ? straight_slot_bytes(largest_node(groups.map), shape.uniform_bytes)
                : pairs_slot_bytes(algorithm.exchange, shape, algorithm.level);
  return {{uniform_shape(groups.map, 0, ports, 1), std::move(schedules), std::move(purpose)},
          "alltoall " + std::string(algorithm.name),
          slot};
}

/// All rooted collectives in all their forms.
inline std::vector<RootedCall> rooted_calls(const Shape& shape, int root) {
  std::vector<RootedCall> calls;
  for (const auto& algorithm : coll::gather::algorithms()) {
    calls.push_back(make_gather(algorithm, shape, root));
  }
  for (const auto& algorithm : coll::scatter::algorithms()) {
    calls.push_back(make_scatter(algorithm, shape, root));
  }
  for (const auto& algorithm : coll::broadcast::algorithms()) {
    calls.push_back(make_broadcast(algorithm, shape, root));
  }
  return calls;
}

}  // namespace allrail::schedule::testing
