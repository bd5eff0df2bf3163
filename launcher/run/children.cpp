#include "launcher/run/children.hpp"

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launcher/run/janitor.hpp"
#include "lib/base/error.hpp"

namespace allrail::launcher::run {
namespace {

struct Pipe {
  base::UniqueFd read_end;
  base::UniqueFd write_end;
};

Pipe make_pipe() {
  int ends[2];
  base::check_minus_one(pipe2(ends, O_CLOEXEC), "creating a pipe to a rank");
  return {base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

/// Runs in the child. Only async-signal-safe calls: whatever library has a thread in the
/// launcher, it may have held any lock at the fork.
[[noreturn]] void become_rank(const SpawnSettings& settings, int rank, pid_t launcher,
                              const int (&stdio)[3], char* const* arguments,
                              char* const* environment) {
  setpgid(0, 0);
  Janitor::report(settings.janitor_fd, getpid());
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have died before that line.
  if (getppid() != launcher) _exit(127);
  // The only one that the launcher ignores by itself; what its caller ignores stays ignored.
  signal(SIGPIPE, SIG_DFL);
  for (int fd = 0; fd < 3; ++fd) {
    if (stdio[fd] != fd) dup2(stdio[fd], fd);
  }
  syscall(SYS_close_range, 3U, ~0U, static_cast<unsigned>(CLOSE_RANGE_CLOEXEC));
  setrlimit(RLIMIT_NOFILE, &settings.open_files);
  sigprocmask(SIG_SETMASK, &settings.signal_mask, nullptr);
  execve(settings.path.c_str(), arguments, environment);
  const ExecError error{rank, errno};
  while (write(settings.exec_error_fd, &error, sizeof error) < 0 && errno == EINTR) {
  }
  _exit(127);
}

}  // namespace

std::vector<std::string> common_environment(const std::string& nodes) {
  // Of the launcher that this one is a rank of, if it is.
  constexpr std::string_view kTerminal = "ALLRAIL_STDERR_IS_TERMINAL=";
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!nodes.empty() && std::string_view(*entry).starts_with("ALLRAIL_NODES=")) continue;
    if (std::string_view(*entry).starts_with(kTerminal)) continue;
    environment.emplace_back(*entry);
  }
  if (isatty(STDERR_FILENO) == 1) environment.push_back(std::string(kTerminal) + "1");
  if (!nodes.empty()) environment.push_back("ALLRAIL_NODES=" + nodes);
  return environment;
}

Child spawn(const SpawnSettings& settings, int rank, const std::vector<std::string>& environment,
            Input input) {
  Child child;
  child.rank = rank;
  Pipe streams[2] = {make_pipe(), make_pipe()};
  base::UniqueFd stdin_fd;
  if (input == Input::Pipe) {
    Pipe pipe = make_pipe();
    stdin_fd = std::move(pipe.read_end);
    child.input = std::move(pipe.write_end);
    fcntl(child.input.get(), F_SETFL, O_NONBLOCK);
  } else if (input == Input::Null) {
    stdin_fd = base::UniqueFd(base::check_minus_one(open("/dev/null", O_RDONLY | O_CLOEXEC),
                                                    "opening /dev/null for a rank"));
  }
  const int stdio[3] = {stdin_fd ? stdin_fd.get() : 0, streams[0].write_end.get(),
                        streams[1].write_end.get()};
  const std::vector<char*> argument_pointers = pointers(settings.arguments);
  const std::vector<char*> environment_pointers = pointers(environment);
  const pid_t launcher = getpid();
  child.pid = fork();
  if (child.pid == 0) {
    become_rank(settings, rank, launcher, stdio, argument_pointers.data(),
                environment_pointers.data());
  }
  base::check_minus_one(child.pid, "forking a rank");
  // Both sides set it, so that a signal for the group finds it whoever comes first.
  setpgid(child.pid, child.pid);
  child.running = true;
  for (int stream = 0; stream < 2; ++stream) {
    child.output[stream] = std::move(streams[stream].read_end);
    fcntl(child.output[stream].get(), F_SETFL, O_NONBLOCK);
  }
  return child;
}

std::string describe_end(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return fmt::format("exited with code {}", info.si_status);
  return fmt::format("was killed by signal {} ({}){}", info.si_status, strsignal(info.si_status),
                     info.si_code == CLD_DUMPED ? ", core dumped" : "");
}

int exit_code_of(const siginfo_t& info) {
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

}  // namespace allrail::launcher::run
