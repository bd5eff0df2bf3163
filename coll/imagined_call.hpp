// A call of a job that does not run: the schedules of any of its ranks, for the cost model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "coll/block_header.hpp"
#include "coll/schedule/program.hpp"
#include "coll/schedule/schedule.hpp"
#include "coll/schedule/shape.hpp"

namespace allrail::coll {

/// All blocks have the same size: of a broadcast the data, of an alltoall what a pair exchanges.
struct ImaginedCall {
  Operation operation = Operation::Allgather;
  std::string algorithm;
  std::uint64_t bytes = 0;
  int root = 0;
  int ports = 1;
  int leaders = 1;                  // of an allgather or alltoall, per node
  std::uint64_t segment_bytes = 0;  // of a broadcast's pipeline; 0: chosen
};

/// The schedules that a job would run for ordinary memory, in one slice however large it is:
/// straight between user buffers where a job would do that, else through slots.
class ImaginedSchedules {
 public:
  /// @throws Error{InvalidArgument} for an unknown algorithm or a root that is no rank.
  /// `switches` of the nodes, which algorithms by topology go by; null: not known.
  ImaginedSchedules(ImaginedCall call, schedule::NodeMap map,
                    std::shared_ptr<const schedule::Switches> switches = nullptr);

  const schedule::NodeMap& map() const { return shape_.map; }
  schedule::Schedule of(int rank) const;
  /// -1: the collective has none.
  int root() const;
  /// Whether nodes are its participants, so that its node phase has a closed form.
  bool is_over_nodes() const { return is_over_nodes_; }
  /// One rank stands for several: never straight, and in the order of a node with several.
  void stand_for_several() {
    is_straight_ = false;
    shape_.stands_for_several = true;
  }

 private:
  ImaginedCall call_;
  schedule::Shape shape_;
  bool is_over_nodes_ = false;
  bool is_straight_ = false;
};

/// A call over nodes with one rank for every leader instead of all ranks: what they exchange is the
/// same, and what the others do is said by a NodePhase.
struct LeadersOnly {
  ImaginedCall call;
  int ranks_per_node = 1;  // leaders
  schedule::NodePhase phase;
};
LeadersOnly leaders_only(const ImaginedCall& call, int ranks_per_node);

}  // namespace allrail::coll
