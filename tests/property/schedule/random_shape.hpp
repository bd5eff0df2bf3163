#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "coll/allgather/allgather.hpp"
#include "coll/schedule/replay.hpp"
#include "coll/schedule/shape.hpp"
#include "tests/property/effort.hpp"

// Random shapes for the property tests. Everything comes from one seed, so that a failure can be
// repeated from what it prints.
namespace allrail::coll::allgather {

/// GoogleTest would print the bytes of the struct.
inline void PrintTo(const Algorithm& algorithm, std::ostream* out) { *out << algorithm.name; }

}  // namespace allrail::coll::allgather

namespace allrail::schedule::testing {

using property::kOneOf;
using property::Sample;

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : engine_(seed) {}
  /// From low to high, both included. Modulo, not a distribution: the same with every library.
  int number(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  std::mt19937_64 engine_;
};

inline NodeMap one_node(int ranks) {
  return NodeMap(std::vector<int>(static_cast<std::size_t>(ranks), 0));
}

/// Blocked, cyclic or fully irregular, with 1 to `ranks` nodes.
inline NodeMap random_map(Generator& generator, int ranks) {
  // Every other map has few nodes, so that nodes have room for several leaders.
  const int nodes = generator.number(1, generator.number(0, 1) == 0 ? ranks : (ranks + 3) / 4);
  const int kind = generator.number(0, 2);
  std::vector<int> node_of(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    node_of[rank] = kind == 0      ? static_cast<int>(static_cast<long long>(rank) * nodes / ranks)
                    : kind == 1    ? rank % nodes
                    : rank < nodes ? rank
                                   : generator.number(0, nodes - 1);
  }
  if (kind == 2) {  // the first ranks made every node occur; now mix
    for (int rank = ranks - 1; rank > 0; --rank) {
      std::swap(node_of[rank], node_of[generator.number(0, rank)]);
    }
  }
  return NodeMap(std::move(node_of));
}

/// Equal, empty or uneven blocks up to `largest` bytes; packed, in another order, or with gaps.
inline Shape random_shape(Generator& generator, NodeMap map, int ports, int leaders, int largest) {
  const int ranks = map.ranks();
  const int kind = generator.number(0, 3);
  const int equal = generator.number(0, largest);
  std::vector<std::uint64_t> bytes(ranks);
  for (std::uint64_t& block : bytes) {
    block = kind == 0   ? equal
            : kind == 1 ? generator.number(0, 1) * equal
                        : generator.number(0, largest);
  }
  Shape shape = packed_shape(std::move(map), std::move(bytes), ports, leaders);
  if (generator.number(0, 2) == 0) {
    std::vector<int> order(ranks);
    std::iota(order.begin(), order.end(), 0);
    for (int i = ranks - 1; i > 0; --i) {
      std::swap(order[i], order[generator.number(0, i)]);
    }
    std::uint64_t offset = 0;
    for (const int rank : order) {
      offset += generator.number(0, 1) * 8;
      shape.receive_offsets[rank] = offset;
      offset += shape.bytes[rank];
    }
  }
  return shape;
}

/// Nodes on 1 to as many leaves, some numbers of which may be nobody's; every other time with
/// chassis.
inline std::shared_ptr<const Switches> random_switches(Generator& generator, int nodes) {
  auto switches = std::make_shared<Switches>();
  const int leaves = generator.number(1, nodes);
  int largest = 0;
  for (int node = 0; node < nodes; ++node) {
    switches->leaf_of.push_back(generator.number(0, leaves - 1));
    largest = std::max(largest, switches->leaf_of.back());
  }
  const int chassis = generator.number(1, nodes);
  if (generator.number(0, 1) == 0) return switches;
  for (int leaf = 0; leaf <= largest; ++leaf) {
    switches->chassis_of.push_back(generator.number(0, chassis - 1));
  }
  return switches;
}

/// Anybody may be in any group, and lead any.
inline std::shared_ptr<const Grouping> random_grouping(Generator& generator, const NodeMap& map,
                                                       int lanes) {
  auto grouping = std::make_shared<Grouping>();
  grouping->lanes = lanes;
  for (int rank = 0; rank < map.ranks(); ++rank) {
    grouping->lane_of.push_back(static_cast<std::uint8_t>(generator.number(0, lanes - 1)));
  }
  for (int node = 0; node < map.nodes(); ++node) {
    for (int lane = 0; lane < lanes; ++lane) {
      grouping->leaders.push_back(generator.number(0, map.node_size(node) - 1));
    }
  }
  return grouping;
}

inline ReplayCall make_call(const coll::allgather::Algorithm& algorithm, Shape shape,
                            bool zero_copy = false) {
  std::vector<Schedule> schedules;
  schedules.reserve(shape.bytes.size());
  // In half of the shapes puts are cut.
  const std::uint64_t most_put_bytes =
      shape.ranks() % 2 == 0 ? UINT64_MAX : 2 * *std::ranges::max_element(shape.bytes);
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    schedules.push_back(
        zero_copy ? coll::allgather::make_zero_copy_schedule(algorithm, shape, rank, most_put_bytes)
                  : coll::allgather::make_schedule(algorithm, shape, rank));
  }
  return {std::move(shape), std::move(schedules)};
}

/// Into a receive buffer per node: straight, in puts of at most so many bytes, or through the slot.
inline ReplayCall make_node_shared_call(const coll::allgather::Algorithm& algorithm, Shape shape,
                                        bool straight, std::uint64_t most_put_bytes = 1000) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    schedules.push_back(
        straight
            ? coll::allgather::make_node_shared_schedule(algorithm, shape, rank, most_put_bytes)
            : coll::allgather::make_copied_node_shared_schedule(algorithm, shape, rank));
  }
  return {std::move(shape), std::move(schedules), true};
}

inline std::string sentences(const std::vector<Violation>& violations) {
  std::ostringstream text;
  for (const Violation& violation : violations) {
    text << "\n  " << violation.sentence;
  }
  return text.str();
}

inline std::string describe(const coll::allgather::Algorithm& algorithm, const Shape& shape,
                            std::uint64_t seed) {
  std::ostringstream text;
  text << algorithm.name << ", " << shape.ranks() << " ranks on nodes";
  for (const int node : shape.map.node_of) {
    text << ' ' << node;
  }
  text << ", " << shape.ports << " ports, " << shape.leaders << " leaders, seed " << seed;
  return text.str();
}

}  // namespace allrail::schedule::testing
