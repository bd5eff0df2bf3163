#include "launcher/run/input.hpp"

#include <cerrno>

#include <unistd.h>

namespace allrail::launcher::run {

bool input_is_terminal() { return isatty(0) == 1; }

bool TerminalInput::wants_read() const {
  return open() && !ended_ && pending_.empty() && tcgetpgrp(0) == getpgrp();
}

void TerminalInput::on_readable() {
  char bytes[4096];
  const ssize_t got = read(0, bytes, sizeof bytes);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) {
    ended_ = true;
    rank_input_.reset();
    return;
  }
  pending_.assign(bytes, static_cast<std::size_t>(got));
  on_writable();
}

void TerminalInput::on_writable() {
  while (!pending_.empty()) {
    const ssize_t written = write(rank_input_.get(), pending_.data(), pending_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    if (written < 0) {
      // Rank 0 has closed its input or has ended.
      pending_.clear();
      ended_ = true;
      rank_input_.reset();
      return;
    }
    pending_.erase(0, static_cast<std::size_t>(written));
  }
}

}  // namespace allrail::launcher::run
