#pragma once

#include <cstdint>

#include "coll/schedule/exchange.hpp"
#include "coll/schedule/schedule.hpp"
#include "coll/schedule/shape.hpp"

// From an exchange of blocks to the schedule of one rank. A schedule for one rank costs O(n) time.
// All functions throw std::invalid_argument for a shape that does not fit together.
namespace allrail::schedule {

/// Participants are ranks. Every local rank has its own part of the node's slot, at
/// local_rank * flat_part_bytes(shape); arrived blocks are copied out while later puts fly.
Schedule lower_flat(const Exchange& exchange, const Shape& shape, int rank);

/// Participants are ranks and nothing goes through the slot: blocks travel from send or receive
/// buffer straight into the peer's receive buffer at shape.receive_offsets, which must be the same
/// on all ranks. No headers, and puts of zero bytes do not exist on either side. Absolute placement
/// only. Every put has to != Slot; the first one to a peer must wait for that peer's ready token.
/// Blocks that lie beside each other are one put of up to `most_put_bytes`.
Schedule lower_flat_zero_copy(const Exchange& exchange, const Shape& shape, int rank,
                              std::uint64_t most_put_bytes);

/// Participants are nodes: gather in the node, one exchange per lane among the leaders, broadcast
/// in the node. The whole slot is shared by the node and laid out lane by lane. With one node there
/// is no put; with one rank there is one copy.
Schedule lower_over_nodes(ExchangeFunction exchange, const Shape& shape, int rank);

/// How the blocks of a group come to its leader: every rank copies its own there, or the ranks
/// exchange them, with local puts, until all of them have all.
enum class Gather : std::uint8_t { Copies, Exchange };

/// Participants are all leaders of all nodes, and each receives everything, for the ranks of its
/// group: what Kandalla 2009 does. As many leaders as the smallest node has ranks, at most. An
/// exchange in the group is the same algorithm. Absolute placement only.
Schedule lower_multi_leader(ExchangeFunction exchange, const Shape& shape, int rank, Gather gather);
/// What it takes of the slot, at most, on any node.
std::uint64_t multi_leader_slot_bytes(const Shape& shape, Gather gather);

/// Slot bytes of the largest lane, at most: what shape.lane_bytes must not be below.
std::uint64_t largest_lane_bytes(const Shape& shape);

/// Participants are nodes, and the ranks of a node have one receive buffer together. Every rank
/// copies its block to its place there, the leader of a node puts from there into the receive
/// buffers of other nodes, and nobody copies out. shape.receive_offsets must be the same on all
/// ranks, except on a single node, where they must be so on that node. Absolute placement only. No
/// put is longer than `most_put_bytes`. The slot has flags, and for several nodes the header that
/// the Stamp writes: ready tokens go to the peers behind that step.
Schedule lower_node_shared(ExchangeFunction exchange, const Shape& shape, int rank,
                           std::uint64_t most_put_bytes);

/// The same result through the slot: any placement, and receive offsets that are the same on the
/// ranks of a node only. The leader of a node copies what arrives to its place, once.
Schedule lower_node_shared_copied(ExchangeFunction exchange, const Shape& shape, int rank);

/// The same result on the only node where blocks are small: one rank copies all of them to their
/// places, the first that sees that all have entered. Receive offsets are the same on all ranks.
Schedule lower_node_shared_once(const Shape& shape, int rank);
/// What it takes of the slot.
std::uint64_t node_shared_once_slot_bytes(const Shape& shape);

/// The only node, nothing through the slot: every rank reads the blocks of the others where they
/// lie and copies its own. `source` is where the others find the block of this rank, in its send
/// buffer or at its place in the receive buffer; each rank decides that for itself. Needs memory
/// that the ranks of a node can read of each other.
Schedule lower_from_peers(const Shape& shape, int rank, Memory source);

/// The only node, blocks of up to kLineBytes through the lines of the flags.
Schedule lower_in_lines(const Shape& shape, int rank);

/// The most puts that one transfer of lower_node_shared() can be cut into because its blocks do not
/// lie beside each other: the same on all ranks.
std::uint64_t most_runs_per_transfer(ExchangeFunction exchange, const Shape& shape);

/// Slot bytes that one rank needs in a flat algorithm, the same for all ranks of the job.
std::uint64_t flat_part_bytes(const Shape& shape);

}  // namespace allrail::schedule
