// Notices that processes of this node have died.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include <sys/types.h>

#include "lib/base/handle.hpp"

namespace allrail::shm {

/// Watches processes by pidfd: a number that is used again later is not mistaken for the process.
class PeerWatch {
 public:
  PeerWatch() = default;
  /// Throws Error{ResourceLimit} where descriptors run out. A process that is already gone counts
  /// as dead at once.
  explicit PeerWatch(std::span<const pid_t> pids);

  /// The index (into the pids given) of a process that has ended, or nothing. One system call that
  /// never blocks: for the slow path of waits. A process that was forget()ed is not reported.
  std::optional<int> dead() const;
  /// Whether this process has ended and was not forgotten. One system call.
  bool is_dead(int index) const;
  /// This process may end now: it said goodbye.
  void forget(int index) noexcept;
  /// The pidfd for epoll; -1 for a process that was gone at the start or forgotten.
  int descriptor(int index) const noexcept {
    return watched_[static_cast<std::size_t>(index)].fd.get();
  }
  int size() const noexcept { return static_cast<int>(watched_.size()); }

 private:
  struct Watched {
    base::UniqueFd fd;
    bool gone = false;
  };
  std::vector<Watched> watched_;
};

}  // namespace allrail::shm
