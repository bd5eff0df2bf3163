// Finds ranks that made different calls under the same number.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/control/local_node.hpp"
#include "transport/control/messages.hpp"

namespace allrail::transport::control {

class CallWatch {
 public:
  explicit CallWatch(std::int64_t wait_ns) : wait_ns_(wait_ns) {}

  /// Looks at what the local ranks do now. Returns a cause if two of them made different calls.
  std::optional<AbortCause> observe(std::span<const LocalProgress> progress, std::int64_t now_ns);
  /// The local ranks that have waited in one call for long; one for each different call.
  const std::vector<Wait>& waits() const noexcept { return waits_; }
  /// Compares what ranks of another node wait in with what the local ranks did last.
  std::optional<AbortCause> compare(std::span<const Wait> waits) const;

 private:
  struct Seen {
    LocalProgress progress;
    std::int64_t since_ns = 0;
  };
  const std::int64_t wait_ns_;
  std::vector<Seen> seen_;
  std::vector<Wait> waits_;
};

}  // namespace allrail::transport::control
