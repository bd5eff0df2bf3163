// Finds ranks that made different calls under the same number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/control/local_node.hpp"
#include "transport/control/messages.hpp"

namespace allrail::transport::control {

class CallWatch {
 public:
  /// LocalNode::stamp_of().
  using StampOf = std::function<std::uint64_t(std::size_t local, std::uint64_t call)>;

  CallWatch(std::int64_t wait_ns, StampOf stamp_of)
      : wait_ns_(wait_ns), stamp_of_(std::move(stamp_of)) {}

  /// Looks at what the local ranks do now. Returns a cause if two of them made different calls.
  std::optional<AbortCause> observe(std::span<const LocalProgress> progress, std::int64_t now_ns);
  /// The local ranks that have waited in one call for long; one for each different call.
  const std::vector<Wait>& waits() const noexcept { return waits_; }
  /// Compares what ranks of another node wait in with what the local ranks did last: those
  /// that observe() has seen.
  std::optional<AbortCause> compare(std::span<const Wait> waits) const;

 private:
  struct Seen {
    int rank = -1;
    bool in_call = false;
    std::uint64_t sequence = 0;
    std::int64_t since_ns = 0;
  };
  const std::int64_t wait_ns_;
  const StampOf stamp_of_;
  std::vector<Seen> seen_;
  std::vector<Wait> waits_;
};

}  // namespace allrail::transport::control
