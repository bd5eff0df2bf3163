// A plan: what this rank does in a call of given sizes, computed once and kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coll/allgather/allgather.hpp"
#include "coll/block_header.hpp"
#include "coll/roster.hpp"
#include "coll/schedule/schedule.hpp"
#include "coll/schedule/shape.hpp"

namespace allrail::coll {

/// Everything that decides a plan besides the ranks and their nodes. The plan does not keep it.
struct PlanRequest {
  Operation operation = Operation::Allgather;
  std::vector<std::uint64_t> bytes;         // of every rank's block
  int root = -1;                            // of a collective that has one
  std::vector<std::uint64_t> send_offsets;  // alltoall: my block for every rank
  std::vector<std::uint64_t> matrix;        // alltoallv: of every pair, by from * ranks + to
  // Where it goes in my receive buffer; of a gather or scatter: where it lies in the root's buffer.
  std::vector<std::uint64_t> receive_offsets;
  bool displaced = false;                    // offsets may differ between ranks
  MemoryKind memory = MemoryKind::Ordinary;  // that it receives into
  // Where the ranks of my node find my block, of a call into Buffers: where it is sent from, or at
  // its place in the result. Ranks may differ.
  bool send_is_mapped = false;
  std::string algorithm;  // a name of the table, never empty
  int ports = 1;
  int leaders = 1;
};

/// How much slot memory a call may take.
struct PlanLimits {
  std::uint64_t large_slot_bytes = 0;
  std::uint64_t zero_copy_threshold_bytes = 0;  // smallest block straight to ordinary memory
  // What a call may register of user memory with each rail; above it blocks are copied.
  std::uint64_t registered_bytes = UINT64_MAX;
  std::uint64_t buffer_threshold_bytes = UINT64_MAX;  // smallest block straight into a Buffer
  // Smallest contribution of a node, all its blocks together, straight into a NodeBuffer.
  std::uint64_t node_buffer_threshold_bytes = 0;
  // Slots up to this have no part for each lane.
  std::uint64_t small_slot_bytes = 0;
  // On a single node, the smallest block that the ranks read out of each other's memory, where that
  // is ordinary and where it is in Buffers.
  std::uint64_t single_copy_threshold_bytes = UINT64_MAX;
  std::uint64_t mapped_threshold_bytes = UINT64_MAX;
};

class Recipe;

class CallPlan {
 public:
  /// `roster` outlives the plan. Throws Error{InvalidArgument} for an unknown algorithm,
  /// Error{ResourceLimit} where not even one byte per rank fits into the node memory.
  CallPlan(const PlanRequest& request, const Roster& roster, const PlanLimits& limits);
  ~CallPlan();

  /// Hash of operation, root, counts, algorithm, ports, leaders and kind of memory: equal on ranks
  /// that agree.
  std::uint64_t hash() const { return hash_; }
  const CallDescription& description() const { return description_; }
  /// Blocks go straight between user buffers, or NodeBuffers, after ready tokens.
  bool zero_copy() const { return way_ == Way::Straight || way_ == Way::StraightToNodes; }
  /// What a zero-copy call of this size may register with each rail: its result, unless that is a
  /// Buffer, and one block.
  std::uint64_t registered_bytes() const { return registered_bytes_; }
  /// It would be zero-copy, but may not register so much.
  bool copies_because_of_limit() const { return copies_because_of_limit_; }

  /// Results that do not fit into a slot are cut: slice s is bytes [s, s + 1) * slice_bytes of
  /// every block.
  std::uint64_t slices() const { return slices_; }
  std::uint64_t slice_bytes() const { return slice_bytes_; }
  /// The schedule of one slice; offsets count from the slice's start in both user buffers.
  std::shared_ptr<const schedule::Schedule> schedule(std::uint64_t slice) const;
  /// Makes the schedules of all slices now, so that schedule() allocates nothing later.
  void keep_all_slices();
  /// The schedule of slice 0, without sharing: the path of calls that are one slice.
  const schedule::Schedule& first() const { return *first_; }
  /// Slot bytes that a slice takes on the largest node: the same on all ranks.
  std::uint64_t slot_bytes() const { return slot_bytes_; }
  /// Ranks of other nodes (and with flat algorithms of mine) that this plan talks to.
  const std::vector<int>& peers() const { return peers_; }

 private:
  /// The way of the data, the same on all ranks.
  enum class Way : std::uint8_t {
    ThroughSlots,         // copied into slots and out of them
    Straight,             // between user buffers by rail, after ready tokens
    ThroughSlotsToNodes,  // likewise, and then once into the NodeBuffer
    StraightToNodes,      // between NodeBuffers by rail, after ready tokens
    InLines,              // in the lines of the flags of the only node
    FromPeers,            // read where it lies by the ranks of the only node
    WithinNode,           // into the NodeBuffer of the only node, without rail and slot
  };
  Way choose_way(const PlanRequest& request, const schedule::NodeMap& map,
                 const PlanLimits& limits) const;
  bool reads_from_peers(const PlanRequest& request, const schedule::NodeMap& map,
                        const PlanLimits& limits) const;
  /// Straight between receive buffers, where the call would be copied through slots otherwise.
  bool goes_straight(const PlanRequest& request, const schedule::NodeMap& map,
                     const PlanLimits& limits) const;
  bool goes_straight_to_nodes(const PlanRequest& request, const schedule::NodeMap& map,
                              const PlanLimits& limits) const;
  /// What every rank has in one slice.
  std::vector<std::uint64_t> bytes_of_slice(std::uint64_t slice) const;
  /// Whether two slices have the same schedule.
  bool are_alike(std::uint64_t slice, std::uint64_t other) const;
  schedule::Schedule make_schedule(const schedule::NodeMap& map, std::uint64_t slice) const;
  std::uint64_t slot_bytes_for(const schedule::NodeMap& map, std::uint64_t slice_bytes) const;
  void choose_slices(const schedule::NodeMap& map, const PlanLimits& limits);
  void keep_what_later_slices_need();
  /// Gives every lane its part of a large slot, where that is a matter of memories.
  void part_slot(const schedule::NodeMap& map, const PlanLimits& limits);

  const Roster& roster_;
  const std::unique_ptr<const Recipe> recipe_;  // of anything but an allgather
  const allgather::Algorithm& algorithm_;       // of an allgather
  int ports_;
  int leaders_;
  // Of all ranks only what a later slice is made of: nothing at all for a call of one slice, one
  // size where all blocks have the same.
  std::vector<std::uint64_t> blocks_;           // bytes of every rank's block
  std::vector<std::uint64_t> receive_offsets_;  // where displaced
  std::uint64_t largest_block_ = 0;
  std::uint64_t registered_bytes_ = 0;
  bool copies_because_of_limit_ = false;
  Way way_ = Way::ThroughSlots;
  bool send_is_mapped_ = false;
  std::uint64_t hash_ = 0;
  CallDescription description_;
  std::uint64_t slices_ = 1;
  std::uint64_t slice_bytes_ = 0;
  std::uint64_t slot_bytes_ = 0;
  std::uint64_t lane_bytes_ = 0;  // 0: lanes follow each other
  std::shared_ptr<const schedule::Schedule> first_;
  std::vector<std::shared_ptr<const schedule::Schedule>> kept_;  // by slice, or empty
  std::vector<int> peers_;
};

}  // namespace allrail::coll
