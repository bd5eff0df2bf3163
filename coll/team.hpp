// Who runs collectives together: this rank's place, and what it acts on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "coll/offer.hpp"
#include "coll/roster.hpp"
#include "shm/liveness.hpp"
#include "shm/peer_reader.hpp"
#include "shm/segment.hpp"
#include "shm/wait.hpp"
#include "transport/fabric.hpp"

namespace allrail::coll {

class EngineGroup;

/// What a rank that runs collectives asks of, and tells, the other layers.
class TeamEvents {
 public:
  virtual ~TeamEvents() = default;
  /// This rank wrote the abort word: the control plane floods it.
  virtual void abort_set() = 0;
  /// What the fabric needs to connect to this rank.
  virtual transport::PeerRails rails_of(int peer) = 0;
};

/// Borrowed by the engine for its whole life.
struct Team {
  int rank = 0;
  int node = 0;
  int local_rank = 0;
  const Roster* roster = nullptr;
  const std::vector<shm::SegmentLayout>* layouts = nullptr;  // by node size
  shm::NodeSegment* segment = nullptr;
  transport::Fabric* fabric = nullptr;      // null: the job has one node and local puts are copies
  shm::PeerWatch* watch = nullptr;          // local ranks by local rank; may be null
  TeamEvents* events = nullptr;             // null only without a fabric
  const shm::PeerReader* reader = nullptr;  // local ranks by local rank; null: not allowed
  const MappedBuffers* buffers = nullptr;   // null: there are none
  shm::WaitPolicy wait_policy;
  int home_cpu = -1;  // where this rank waits if it has to share its cpu; -1: nowhere in particular
  bool shares_cpus = false;  // with other ranks of the job, of any of its nodes
  // A rank that waits for so long looks after what others may need of it, and again so often.
  std::int64_t slow_check_ns = 500'000;
  // After so long a rank warns that it still waits, and again after ten times as long.
  std::int64_t warn_after_ns = 30'000'000'000;
  bool local_puts_by_rail = false;
  EngineGroup* group = nullptr;  // of this process; null: there is no other communicator
  std::string name = "world";    // of the communicator, for texts
  std::vector<int> job_ranks;    // the number in the job of every rank; empty: it is the same

  /// Of a rank of my node.
  int local_rank_of(int other) const { return roster->local_rank_of(other); }
  int node_of(int other) const { return roster->node_of(other); }
  /// Where a slot starts in the segment of another node, whose size may differ from mine.
  std::uint64_t slot_offset(int of_node, int slot_number) const {
    const auto& layout = (*layouts)[static_cast<std::size_t>(roster->node_size(of_node))];
    const auto number = static_cast<std::uint64_t>(slot_number);
    const auto small = static_cast<std::uint64_t>(layout.small_slots);
    return number < small ? layout.small_slots_offset + number * layout.small_slot_stride
                          : layout.large_slots_offset + (number - small) * layout.large_slot_stride;
  }
  /// The same rank as the job numbers it, and back: -1 for one that is not in this communicator.
  int job_rank_of(int rank_here) const {
    return job_ranks.empty() || rank_here < 0 ? rank_here
                                              : job_ranks[static_cast<std::size_t>(rank_here)];
  }
  int rank_of_job(int job_rank) const {
    if (job_ranks.empty() || job_rank < 0) return job_rank;
    const auto found = std::ranges::find(job_ranks, job_rank);
    return found == job_ranks.end() ? -1 : static_cast<int>(found - job_ranks.begin());
  }
  /// Whether puts to this rank are copies inside the node segment.
  bool is_local(int other) const { return node_of(other) == node && !local_puts_by_rail; }
};

}  // namespace allrail::coll
