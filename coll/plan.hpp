// A plan: what this rank does in a call of given sizes, computed once and kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coll/block_header.hpp"
#include "coll/roster.hpp"
#include "coll/schedule/schedule.hpp"
#include "coll/schedule/shape.hpp"
#include "coll/slots.hpp"

namespace allrail::coll {

/// Everything that decides a plan besides the ranks and their nodes. The plan does not keep it.
struct PlanRequest {
  Operation operation = Operation::Allgather;
  std::vector<std::uint64_t> bytes;         // of every rank's block
  int root = -1;                            // of a collective that has one
  std::vector<std::uint64_t> send_offsets;  // alltoall: my block for every rank
  std::vector<std::uint64_t> matrix;        // alltoallv: of every pair, by from * ranks + to
  // alltoallv whose blocks travel in envelopes, which is what the matrix is of: the longest block.
  std::optional<std::uint64_t> longest_in_envelope;
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

/// How much memory a call may take, and from which sizes on it goes which way.
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
  std::uint64_t segment_bytes = 0;  // of a broadcast's pipeline; 0: chosen
  // On a single node, the largest block into a NodeBuffer that one rank copies for all; 0: none.
  std::uint64_t once_bytes = 0;
  bool shares_cores = false;  // on a single node: ranks outnumber cores
  // Also on a single node, where flat algorithms may put over them.
  bool has_rails = false;
  std::uint64_t alltoall_threshold_bytes = UINT64_MAX;  // see alltoall::goes_straight()
  std::uint64_t rooted_threshold_bytes = UINT64_MAX;    // see schedule::rooted_goes_straight()
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
  bool zero_copy() const { return zero_copy_; }
  /// What a zero-copy call of this size may register with each rail: its result, unless that is a
  /// Buffer, and one block.
  std::uint64_t registered_bytes() const { return registered_bytes_; }
  /// It would be zero-copy, but may not register so much.
  bool copies_because_of_limit() const { return copies_because_of_limit_; }

  /// Results that do not fit into a slot are cut: slice s is slice_bytes of every block, or fewer,
  /// from slice_begin(s) on. A call whose parts go different ways has slices of each, and those of
  /// a chain are of one block only.
  std::uint64_t slices() const { return slices_; }
  std::uint64_t slice_begin(std::uint64_t slice) const;
  /// The schedule of one slice; offsets count from the slice's start in both user buffers.
  std::shared_ptr<const schedule::Schedule> schedule(std::uint64_t slice) const;
  /// Makes the schedules of all slices now, so that schedule() allocates nothing later.
  void keep_all_slices();
  /// The schedule of slice 0, without sharing: the path of calls that are one slice.
  const schedule::Schedule& first() const { return *first_; }
  /// One slice of copies and flags of one node: walk_on_node() can do it.
  bool is_on_node() const { return is_on_node_; }
  /// One slice of a collective with a root that puts to nobody twice: where the same is called
  /// again and again, nobody answers such a put before the next one.
  bool may_coalesce() const { return may_coalesce_; }
  /// The longest put that this rank awaits in the first slice of any part.
  std::uint64_t most_awaited_bytes() const { return most_awaited_bytes_; }
  /// Slot bytes that a slice takes on the largest node: the same on all ranks.
  std::uint64_t slot_bytes() const { return slot_bytes_; }
  /// The same on all ranks, too.
  SlotOrder slot_order() const { return slot_order_; }
  /// Ranks of other nodes (and with flat algorithms of mine) that this plan talks to.
  const std::vector<int>& peers() const { return peers_; }

 private:
  struct Part;  // its slices are alike in size, but for the last one
  const Part& part_of(std::uint64_t slice) const;
  /// Whether two slices have the same schedule.
  bool are_alike(std::uint64_t slice, std::uint64_t other) const;
  SlotOrder choose_order(const Roster& roster, const PlanLimits& limits) const;
  void check_slot(std::uint64_t needed_bytes, const Roster& roster, const PlanLimits& limits) const;
  void choose_slices(Part& part, const Roster& roster, const PlanLimits& limits);
  void make_first(Part& part, const Roster& roster);

  // None where there is one slice: a later one is made of sizes of all ranks.
  std::vector<Part> parts_;
  std::uint64_t registered_bytes_ = 0;
  bool zero_copy_ = false;
  bool copies_because_of_limit_ = false;
  bool is_on_node_ = false;
  bool may_coalesce_ = false;
  std::uint64_t most_awaited_bytes_ = 0;
  std::uint64_t hash_ = 0;
  CallDescription description_;
  std::uint64_t slices_ = 0;
  std::uint64_t slot_bytes_ = 0;
  SlotOrder slot_order_ = SlotOrder::Ring;
  std::shared_ptr<const schedule::Schedule> first_;
  std::vector<std::shared_ptr<const schedule::Schedule>> kept_;  // by slice, or empty
  std::vector<int> peers_;
};

}  // namespace allrail::coll
