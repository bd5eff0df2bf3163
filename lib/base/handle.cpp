#include "lib/base/handle.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace allrail::base {

void UniqueFd::reset() noexcept {
  // On Linux the descriptor is gone even when close reports EINTR, so it is never retried.
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void Mapping::reset() noexcept {
  if (address_ != nullptr) ::munmap(address_, bytes_);
  address_ = nullptr;
  bytes_ = 0;
}

}  // namespace allrail::base
