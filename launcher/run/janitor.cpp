#include "launcher/run/janitor.hpp"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "shm/leftovers.hpp"

namespace allrail::launcher::run {
namespace {

// The kernel cuts names at 15 characters.
constexpr const char* kJanitorName = "allrail-janitor";
// So long a process may take that was killed and gives back its memory. The launcher, if it lives,
// does not wait for all of it.
constexpr std::chrono::seconds kEndGrace{10};

/// What can be read of it: a process may end while its files in /proc are, which a stream would
/// throw for.
std::string read_file(const std::string& path) {
  const base::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char part[4096];
  ssize_t got = 0;
  while (file && (got = read(file.get(), part, sizeof part)) > 0) {
    text.append(part, static_cast<std::size_t>(got));
  }
  return text;
}

bool belongs_to_job(const std::string& folder, const std::string& marker) {
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0 || status.st_uid != geteuid()) return false;
  const std::string environment = '\0' + read_file(folder + "/environ");
  if (environment.find(marker) == std::string::npos) return false;
  // The janitor of a launcher that was itself a rank has the marker too: it has its own ranks to
  // clean up, which dies with it otherwise.
  return !read_file(folder + "/comm").starts_with(kJanitorName);
}

/// Kills processes that left their rank's process group, found by the job name in the environment
/// that they inherited. Returns how many there were.
int kill_strays(const std::string& job) {
  const std::string marker = std::string(1, '\0') + "PMIX_NAMESPACE=" + job + std::string(1, '\0');
  int killed = 0;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return 0;
  while (const dirent* entry = readdir(proc)) {
    pid_t pid = 0;
    const char* const end = entry->d_name + std::strlen(entry->d_name);
    const auto result = std::from_chars(entry->d_name, end, pid);
    if (result.ec != std::errc() || result.ptr != end || pid <= 1 || pid == getpid()) continue;
    if (!belongs_to_job(std::string("/proc/") + entry->d_name, marker)) continue;
    if (kill(pid, SIGKILL) == 0) ++killed;
  }
  closedir(proc);
  return killed;
}

void remove_directory(const std::string& directory) {
  for (int round = 0; round < 100; ++round) {
    std::error_code error;
    std::filesystem::remove_all(directory, error);
    if (!error) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// What nobody else of this job can take away any more. Names do not say which job they are of, and
/// need not: a name whose creator is dead is of no use to any.
void remove_names() {
  const auto deadline = base::Deadline::after(kEndGrace);
  while (shm::sweep_leftovers(nullptr).ending > 0 && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void clean(const std::set<pid_t>& groups, const std::string& directory, const std::string& job) {
  for (const pid_t group : groups) kill(-group, SIGKILL);
  // Again until none is found: a process may have forked while the list was read.
  for (int round = 0; round < 100 && kill_strays(job) > 0; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  remove_directory(directory);
  remove_names();
}

[[noreturn]] void run(int pipe_fd, const std::string& directory, const std::string& job) {
  // Its own session, no signals, no shared descriptors: what ends the launcher does not end this.
  setsid();
  prctl(PR_SET_NAME, kJanitorName);
  const int null_fd = open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2; ++fd) dup2(null_fd, fd);
  if (chdir("/") != 0) _exit(1);
  std::set<pid_t> groups;
  while (true) {
    pid_t pid = 0;
    const ssize_t got = read(pipe_fd, &pid, sizeof pid);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof pid) break;
    if (pid > 1) groups.insert(pid);
    if (pid < -1) groups.erase(-pid);
  }
  clean(groups, directory, job);
  _exit(0);
}

}  // namespace

Janitor::Janitor(const std::string& session_directory, const std::string& job)
    : directory_(session_directory), job_(job) {
  int ends[2];
  base::check_minus_one(pipe2(ends, O_CLOEXEC), "creating a pipe to the janitor process");
  base::UniqueFd read_end(ends[0]);
  pipe_ = base::UniqueFd(ends[1]);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  pid_ = fork();
  if (pid_ == 0) {
    pipe_.reset();
    run(read_end.get(), session_directory, job);
  }
  const int fork_error = errno;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  errno = fork_error;
  base::check_minus_one(pid_, "forking the janitor process");
}

void Janitor::report(int pipe_fd, pid_t pid) noexcept {
  while (write(pipe_fd, &pid, sizeof pid) < 0 && errno == EINTR) {
  }
}

void Janitor::finish() noexcept {
  if (pid_ < 0) return;
  pipe_.reset();
  const auto deadline = base::Deadline::after(std::chrono::seconds(3));
  while (waitpid(pid_, nullptr, WNOHANG) == 0 && !deadline.passed()) usleep(500);
  pid_ = -1;
  // Somebody killed it, or it is stuck: the launcher does its work.
  if (access(directory_.c_str(), F_OK) == 0) clean({}, directory_, job_);
}

}  // namespace allrail::launcher::run
