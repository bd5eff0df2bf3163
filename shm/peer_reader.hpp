// Reads memory of other processes of the node with one copy, by process_vm_readv(2). The system may
// forbid it (another user, seccomp, Yama): try it before it is relied on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace allrail::shm {

class PeerReader {
 public:
  PeerReader() = default;
  explicit PeerReader(std::vector<pid_t> pids) : pids_(std::move(pids)) {}

  /// Copies `bytes` from `address` in the process with that index (into the pids given). Returns 0,
  /// or the errno of what failed: ESRCH for a process that has ended, EFAULT for an address that is
  /// not memory, there or here. Part of `to` may have been written then.
  int read(int index, std::uint64_t address, std::byte* to, std::uint64_t bytes) const noexcept;

 private:
  std::vector<pid_t> pids_;
};

}  // namespace allrail::shm
