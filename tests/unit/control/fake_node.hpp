// Nodes of a job in one process: a node segment each, and a control plane over it.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "shm/progress.hpp"
#include "shm/segment.hpp"
#include "transport/control/control_plane.hpp"

namespace allrail::transport {

/// The control plane's view of a node segment.
class SegmentNode : public LocalNode {
 public:
  explicit SegmentNode(const shm::NodeSegment& segment) : segment_(segment) {}
  bool aborted() override { return segment_.aborted(); }
  AbortCause abort_cause() override {
    const shm::AbortRecord record = segment_.abort_record();
    return {record.code, record.peer, record.text};
  }
  void set_abort(const AbortCause& cause) override {
    segment_.set_abort(cause.code, cause.peer, cause.text);
  }
  void set_late(int rank) override { segment_.set_late_rank(rank); }
  void read_progress(std::vector<LocalProgress>& progress) override {
    for (std::size_t index = 0; index < progress.size(); ++index) {
      const shm::RankLine& line = segment_.line(static_cast<int>(index));
      const shm::CallProgress call = shm::read_call(line);
      progress[index].rank = line.rank.load();
      progress[index].state = static_cast<LocalProgress::State>(line.state.load());
      progress[index].in_call = call.entered_ns != 0;
      progress[index].sequence = call.sequence;
      progress[index].stamp = call.stamp;
      progress[index].last = call.sequence;
    }
  }
  std::uint64_t stamp_of(std::size_t local, std::uint64_t call) override {
    return shm::recent_stamp(segment_.line(static_cast<int>(local)), call);
  }

 private:
  const shm::NodeSegment& segment_;
};

/// Node i has the ranks [i * ranks_per_node, (i + 1) * ranks_per_node).
class FakeNode {
 public:
  FakeNode(int node, int node_count, int ranks_per_node = 2,
           std::vector<std::string> items = {"127.0.0.1"}) {
    shm::SegmentLayout request;
    request.ranks = ranks_per_node;
    request.large_slots = 0;
    segments_ = shm::NodeSegment::in_memory(shm::lay_out(request));
    for (int rank = 0; rank < ranks_per_node; ++rank) {
      segments_[0].line(rank).rank.store(node * ranks_per_node + rank);
      segments_[0].line(rank).state.store(shm::RankState::Active);
    }
    options.node = node;
    options.node_count = node_count;
    options.rank = node * ranks_per_node;
    options.size = node_count * ranks_per_node;
    options.job_hash = 42;
    options.items = std::move(items);
  }

  ControlPeer listen() {
    listener_ = std::make_unique<ControlListener>(options);
    return {options.rank, listener_->address()};
  }
  void start(const std::vector<ControlPeer>& peers, std::vector<pid_t> pids = {}) {
    pids.resize(static_cast<std::size_t>(segments_[0].ranks()), 0);
    plane =
        std::make_unique<ControlPlane>(std::move(*listener_), options, peers, pids, local_node());
  }
  void say_goodbye() {
    for (int rank = 0; rank < segments_[0].ranks(); ++rank) {
      segments_[0].line(rank).state.store(shm::RankState::Goodbye);
    }
  }
  const shm::NodeSegment& segment() const { return segments_[0]; }
  bool aborted() const { return segments_[0].aborted(); }
  std::string cause() const { return segments_[0].abort_record().text; }

  ControlOptions options;
  std::unique_ptr<ControlPlane> plane;

 private:
  LocalNode& local_node() {
    local_ = std::make_unique<SegmentNode>(segments_[0]);
    return *local_;
  }
  std::vector<shm::NodeSegment> segments_;
  std::unique_ptr<SegmentNode> local_;
  std::unique_ptr<ControlListener> listener_;

 public:
  ~FakeNode() { plane.reset(); }
  FakeNode(const FakeNode&) = delete;
  FakeNode& operator=(const FakeNode&) = delete;
};

/// Waits until `condition()`; false if it takes longer.
template <class Condition>
bool within(std::chrono::milliseconds limit, Condition&& condition) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace allrail::transport
