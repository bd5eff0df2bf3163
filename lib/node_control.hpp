// What the control plane sees of this node: the abort word and the ranks' lines of its segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shm/segment.hpp"
#include "transport/control/local_node.hpp"

namespace allrail {

class NodeControl final : public transport::LocalNode {
 public:
  /// `segment` outlives this object.
  explicit NodeControl(const shm::NodeSegment& segment) : segment_(segment) {}

  bool aborted() override;
  transport::AbortCause abort_cause() override;
  void set_abort(const transport::AbortCause& cause) override;
  void set_late(int rank) override;
  void read_progress(std::vector<transport::LocalProgress>& progress) override;
  std::uint64_t stamp_of(std::size_t local, std::uint64_t call) override;

 private:
  const shm::NodeSegment& segment_;
};

}  // namespace allrail
