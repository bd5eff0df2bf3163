#include "shm/peer_reader.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>

#include <sys/uio.h>

namespace allrail::shm {
namespace {

// The system copies no more than 2 GiB less a page at once.
constexpr std::uint64_t kMostAtOnce = std::uint64_t{1} << 30;

}  // namespace

int PeerReader::read(int index, std::uint64_t address, std::byte* to,
                     std::uint64_t bytes) const noexcept {
  const pid_t pid = pids_[static_cast<std::size_t>(index)];
  while (bytes > 0) {
    const std::uint64_t wanted = std::min(bytes, kMostAtOnce);
    const iovec here{to, wanted};
    // An address of another process: nobody here looks through the pointer.
    const iovec there{std::bit_cast<void*>(static_cast<std::uintptr_t>(address)), wanted};
    const ssize_t got = ::process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? errno : EFAULT;
    // Less than asked for: the next turn says why.
    const auto read = static_cast<std::uint64_t>(got);
    address += read;
    to += read;
    bytes -= read;
  }
  return 0;
}

}  // namespace allrail::shm
