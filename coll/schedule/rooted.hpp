#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "coll/schedule/contents.hpp"
#include "coll/schedule/exchange.hpp"
#include "coll/schedule/schedule.hpp"
#include "coll/schedule/shape.hpp"
#include "coll/schedule/switch_tree.hpp"

// What gather and scatter have in common: they are one collective in two directions. Every rank has
// a block of its own, which is at the root, too, at shape.receive_offsets of the root's buffer.
namespace allrail::schedule {

/// A row of the table of a collective's algorithms.
struct RootedAlgorithm {
  std::string_view name;
  std::string_view description;
  Level level;
  // Among places, the root's participant at place 0. Block i is that of the ranks at place i.
  ExchangeFunction exchange;
  bool zero_copy = false;  // has a zero-copy schedule: nobody sends blocks of others on
  // Where at least two leaf switches are known: a tree over them instead, joined like this.
  std::optional<Join> over_switches{};
};

/// To the root in a gather, from it in a scatter.
enum class Direction : std::uint8_t { ToRoot, FromRoot };

/// What `rank` does in the call. Throws std::invalid_argument for a shape that does not fit
/// together.
Schedule rooted_schedule(const RootedAlgorithm& algorithm, const Shape& shape, int root, int rank,
                         Direction direction);

/// Whether a call of this shape may go straight between user buffers: with blocks of one size, of
/// so many bytes or more, unless that makes too many links where ranks share nodes.
bool rooted_goes_straight(const RootedAlgorithm& algorithm, const Shape& shape,
                          std::uint64_t threshold_bytes);

/// The same as rooted_schedule() straight between user buffers: out of the one at the sender, into
/// the one at the receiver. Only where algorithm.zero_copy, and with blocks of one size. Blocks of
/// the root's own node go through its slot.
Schedule rooted_zero_copy_schedule(const RootedAlgorithm& algorithm, const Shape& shape, int root,
                                   int rank, Direction direction);

/// Slot bytes of that on a node of so many ranks.
std::uint64_t rooted_straight_slot_bytes(int node_size, std::uint64_t block_bytes);

/// Slot bytes of a node: the same on all ranks, in both directions and for every root, and never
/// less than any schedule has.
std::uint64_t rooted_slot_bytes(const RootedAlgorithm& algorithm, const Shape& shape,
                                int largest_node);

}  // namespace allrail::schedule
