#include "lib/program_output.hpp"

#include <array>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/error.hpp"
#include "lib/base/handle.hpp"

namespace allrail {
namespace {

constexpr std::size_t kMostBytes = std::size_t{256} << 20;

/// 0 and the process, or an errno value.
int spawn(const std::vector<std::string>& command, int output, pid_t& child) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int error = ::posix_spawnp(&child, words[0], &actions, &attributes, words.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return error;
}

/// Until the end of the output. False: the deadline came first, or there is too much of it.
bool read_all(int fd, base::Deadline deadline, std::string& text) {
  std::array<char, 65536> buffer{};
  while (text.size() < kMostBytes) {
    pollfd waiting{fd, POLLIN, 0};
    if (deadline.passed()) return false;
    if (::poll(&waiting, 1, deadline.remaining_ms(1000)) <= 0) continue;
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got == 0) return true;
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
    if (got < 0 && errno != EINTR) return false;
  }
  return false;
}

/// The exit status once the child has ended, -1 where somebody else has taken it. Kills the child
/// at the deadline, or at once.
int await_end(pid_t child, base::Deadline deadline, bool at_once) {
  bool killed = false;
  while (true) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, killed ? 0 : WNOHANG);
    if (ended == child) return status;
    if (ended < 0 && errno != EINTR) return -1;
    if (!killed && (at_once || deadline.passed())) {
      ::kill(child, SIGKILL);
      killed = true;
    } else if (!killed) {
      ::poll(nullptr, 0, 1);
    }
  }
}

}  // namespace

ProgramOutput output_of(const std::vector<std::string>& command, base::Deadline deadline) {
  ProgramOutput output;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    output.problem = fmt::format("no pipe can be made: {}", base::errno_text(errno));
    return output;
  }
  const base::UniqueFd reading(ends[0]);
  base::UniqueFd writing(ends[1]);
  pid_t child = -1;
  const int error = spawn(command, writing.get(), child);
  writing.reset();
  if (error != 0) {
    output.problem = fmt::format("{} cannot be started: {}", command[0], base::errno_text(error));
    return output;
  }
  const bool complete = read_all(reading.get(), deadline, output.text);
  const int status = await_end(child, deadline, !complete);
  if (!complete) {
    output.problem = fmt::format("{} did not end in time", command[0]);
  } else if (status != -1 && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
    output.problem =
        WIFEXITED(status)
            ? fmt::format("{} ended with exit code {}", command[0], WEXITSTATUS(status))
            : fmt::format("{} was ended by a signal, or did not end in time", command[0]);
  }
  if (!output.problem.empty()) output.text.clear();
  return output;
}

}  // namespace allrail
