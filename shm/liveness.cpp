#include "shm/liveness.hpp"

#include <cerrno>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/error.hpp"

namespace allrail::shm {

PeerWatch::PeerWatch(std::span<const pid_t> pids) : watched_(pids.size()) {
  for (std::size_t index = 0; index < pids.size(); ++index) {
    // The wrapper of the C library is younger than Debian 12's. The kernel sets close-on-exec.
    watched_[index].fd = base::UniqueFd(
        static_cast<int>(::syscall(SYS_pidfd_open, static_cast<long>(pids[index]), 0L)));
    if (watched_[index].fd) continue;
    if (errno != ESRCH) {
      base::fail(Code::ResourceLimit, "watching process {} of this node failed: {}", pids[index],
                 base::refusal_text(errno));
    }
    watched_[index].gone = true;
  }
}

std::optional<int> PeerWatch::dead() const {
  constexpr int kAtOnce = 64;
  for (int first = 0; first < size(); first += kAtOnce) {
    pollfd polls[kAtOnce];
    int count = 0;
    for (; count < kAtOnce && first + count < size(); ++count) {
      const Watched& watched =
          watched_[static_cast<std::size_t>(first) + static_cast<std::size_t>(count)];
      if (watched.gone) return first + count;
      polls[count] = {watched.fd.get(), POLLIN, 0};  // poll(2) skips negative descriptors
    }
    if (::poll(polls, static_cast<nfds_t>(count), 0) <= 0) continue;
    for (int index = 0; index < count; ++index) {
      if ((polls[index].revents & POLLIN) != 0) return first + index;
    }
  }
  return std::nullopt;
}

bool PeerWatch::is_dead(int index) const {
  const Watched& watched = watched_[static_cast<std::size_t>(index)];
  pollfd entry{watched.fd.get(), POLLIN, 0};
  return watched.gone || ::poll(&entry, 1, 0) > 0;
}

void PeerWatch::forget(int index) noexcept {
  watched_[static_cast<std::size_t>(index)].fd.reset();
  watched_[static_cast<std::size_t>(index)].gone = false;
}

}  // namespace allrail::shm
