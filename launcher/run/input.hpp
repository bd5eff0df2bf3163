// Standard input of the launcher goes to rank 0. A file or a pipe is inherited by it. A terminal
// cannot be: rank 0 is not in the foreground group and would be stopped when it reads. So the
// launcher reads the terminal and passes the bytes on.
#pragma once

#include <string>

#include "lib/base/handle.hpp"

namespace allrail::launcher::run {

/// True when standard input is a terminal.
bool input_is_terminal();

class TerminalInput {
 public:
  TerminalInput() = default;
  /// `rank_input` is the non-blocking write end of rank 0's standard input.
  explicit TerminalInput(base::UniqueFd rank_input) : rank_input_(std::move(rank_input)) {}
  bool open() const noexcept { return static_cast<bool>(rank_input_); }
  /// True when the terminal is to be read now: this job is in the foreground, and rank 0 has taken
  /// what was read before. A job in the background would be stopped by reading.
  bool wants_read() const;
  bool wants_write() const noexcept { return !pending_.empty(); }
  int rank_fd() const noexcept { return rank_input_.get(); }
  void on_readable();
  void on_writable();

 private:
  base::UniqueFd rank_input_;
  std::string pending_;
  bool ended_ = false;
};

}  // namespace allrail::launcher::run
