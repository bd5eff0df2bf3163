// Who holds a call up: the rank that has made the fewest calls. A rank may wait for one that itself
// waits for another, on a node that it has no link to, so nodes pass on what they know.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/control/local_node.hpp"

namespace allrail::transport::control {

/// A rank that others wait for, the last call that it was seen in, and how old this news is.
struct LateRank {
  int rank = -1;
  std::uint64_t sequence = 0;
  std::uint32_t age_ms = 0;
  friend bool operator==(const LateRank&, const LateRank&) = default;
};

class LateWatch {
 public:
  /// `size` is that of the job: no news of other ranks are believed.
  explicit LateWatch(int size) : size_(size) {}
  /// Some rank, of whatever node, waits in that call.
  void wanted(std::uint64_t sequence);
  /// What the local ranks did last.
  void observe(std::span<const LocalProgress> progress);
  /// What another node says.
  void heard(const LateRank& late, std::int64_t now_ns);
  /// The one that is furthest behind, if anybody is; of several the lowest.
  std::optional<LateRank> late(std::int64_t now_ns) const;

 private:
  struct Seen {
    int rank = -1;
    bool active = false;
    std::uint64_t last = 0;
    bool stays = false;  // it was there when it was looked at before, too
  };
  bool is_local(int rank) const;

  const int size_;
  std::vector<Seen> local_;
  std::uint64_t wanted_ = 0;
  std::optional<LateRank> heard_;
  std::int64_t heard_at_ns_ = 0;
};

}  // namespace allrail::transport::control
