#pragma once

#include <cstdint>

#include "coll/schedule/schedule.hpp"
#include "coll/schedule/shape.hpp"
#include "coll/schedule/step_list.hpp"

// What the two lowerings into a receive buffer that a node shares have in common: one leader per
// node, who talks for it, and flags of two stages. Used by the lowering only.
namespace allrail::schedule {

class NodeSharedSteps {
 public:
  /// At this stage a rank has entered the call: it no longer needs the last result, which lies
  /// where this one goes.
  static constexpr std::uint32_t kEntered = 1;
  /// At this stage the block of a rank is at its place. A leader raises its flag so far when
  /// everything is there, if there are several nodes.
  static constexpr std::uint32_t kThere = 2;

  NodeSharedSteps(const Shape& shape, int rank)
      : shape_(shape),
        rank_(rank),
        node_(shape.map.node_of[rank]),
        local_(shape.map.local_rank_of[rank]),
        leader_(shape.leader(node_, 0)),
        steps_(schedule_) {
    schedule_.stages = alone() ? 0 : kThere;
  }

  int node() const { return node_; }
  bool alone() const { return shape_.map.node_size(node_) == 1; }
  bool leads() const { return local_ == leader_; }
  int leader_of(int node) const { return shape_.talking_rank(node); }
  StepList& steps() { return steps_; }
  Schedule& schedule() { return schedule_; }

  void publish(std::uint32_t stage) {
    if (!alone()) steps_.publish(stage);
  }
  void await_others(std::uint32_t stage) {
    for (int local = 0; local < shape_.map.node_size(node_); ++local) {
      if (local != local_) steps_.await_local(local, stage);
    }
  }
  void await_leader(std::uint32_t stage) { steps_.await_local(leader_, stage); }
  void copy_own() {
    steps_.copy(Memory::Send, 0, Memory::Receive, shape_.receive_offsets[rank_],
                shape_.bytes[rank_]);
  }

 private:
  const Shape& shape_;
  const int rank_;
  const int node_;
  const int local_;
  const int leader_;
  Schedule schedule_;
  StepList steps_;
};

}  // namespace allrail::schedule
