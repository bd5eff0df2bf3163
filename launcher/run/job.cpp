#include "launcher/run/job.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/run/janitor.hpp"
#include "lib/base/error.hpp"

namespace allrail::launcher::run {
namespace {

// After a failure the other ranks get SIGTERM and this long to end by themselves; after Ctrl-C
// the user expects them to have a little more.
constexpr std::chrono::milliseconds kFailureGrace{500};
constexpr std::chrono::milliseconds kInterruptGrace{2000};
// A process that escaped from its rank may hold the output open after the last rank has ended.
constexpr std::chrono::milliseconds kStreamsGrace{100};
// The reader of the output of a failed job may be stuck; that of a good one is waited for.
constexpr std::chrono::milliseconds kOutputGrace{500};
// Ranks that report the death of another one may be seen to end before it: this long a rank that
// was killed may still take the blame.
constexpr std::chrono::milliseconds kBlameGrace{100};
constexpr int kTimeoutCode = 124;
constexpr int kServerLostCode = 1;

/// Whether the end of a rank may be its answer to the death of another one: an exit code, or the
/// abort() of an error that nobody caught.
bool may_be_a_reaction(const siginfo_t& info) {
  return info.si_code == CLD_EXITED || info.si_status == SIGABRT;
}

}  // namespace

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number :
       {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}) {
    // Who starts it may want a hang-up (nohup) or Ctrl-C (a shell's job in the background) to end
    // nothing. A signalfd would show such a signal all the same, as it is blocked.
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    const bool ends_jobs = number == SIGINT || number == SIGHUP || number == SIGQUIT;
    if (!ends_jobs || before.sa_handler != SIG_IGN) sigaddset(&set, number);
  }
  return set;
}

Job::Job(const Options& options, PmixServer& server, Sinks& sinks, int janitor_fd)
    : options_(options), server_(server), sinks_(sinks), janitor_fd_(janitor_fd) {
  const sigset_t set = handled_signals();
  signals_ = base::UniqueFd(
      base::check_minus_one(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), "creating a signalfd"));
  int ends[2];
  base::check_minus_one(pipe2(ends, O_CLOEXEC), "creating a pipe");
  exec_errors_ = base::UniqueFd(ends[0]);
  exec_errors_write_ = base::UniqueFd(ends[1]);
  fcntl(exec_errors_.get(), F_SETFL, O_NONBLOCK);
  if (options.timeout.count() > 0) job_deadline_ = base::Deadline::after(options.timeout);
}

int Job::run(const std::string& path, const Inherited& inherited) {
  start_ranks(path, inherited);
  while (!finished()) {
    wait_for_events();
    check_clocks();
  }
  return exit_code_;
}

void Job::start_ranks(const std::string& path, const Inherited& inherited) {
  SpawnSettings settings;
  settings.path = path;
  settings.arguments = options_.command;
  settings.janitor_fd = janitor_fd_;
  settings.exec_error_fd = exec_errors_write_.get();
  settings.signal_mask = inherited.signal_mask;
  settings.open_files = inherited.open_files;
  const std::vector<std::string> base = common_environment(options_.nodes);
  const bool shows_progress = isatty(STDERR_FILENO) == 1;
  ranks_.reserve(static_cast<std::size_t>(options_.ranks));
  for (int rank = 0; rank < options_.ranks; ++rank) {
    Input input = Input::Null;
    if (rank == 0) input = input_is_terminal() ? Input::Pipe : Input::Inherit;
    const std::string tag = options_.tag_output ? fmt::format("[{}] ", rank) : "";
    ranks_.push_back({spawn(settings, rank, server_.environment_of(rank, base), input),
                      {LineCutter(tag, false), LineCutter(tag, shows_progress)}});
    ++running_;
  }
  terminal_ = TerminalInput(std::move(ranks_[0].child.input));
}

bool Job::finished() const {
  if (running_ > 0) return false;
  if (output_deadline_.passed()) return true;
  for (const Rank& rank : ranks_) {
    if (rank.child.output[0] || rank.child.output[1]) return false;
  }
  return sinks_.empty();
}

int Job::wait_ms() const {
  // A terminal has no event for "in the foreground again", so it is looked at now and then.
  int wait = terminal_.open() ? 200 : 60'000;
  wait = job_deadline_.remaining_ms(wait);
  wait = blame_deadline_.remaining_ms(wait);
  wait = kill_deadline_.remaining_ms(wait);
  wait = streams_deadline_.remaining_ms(wait);
  return output_deadline_.remaining_ms(wait);
}

void Job::wait_for_events() {
  std::vector<pollfd> entries;
  entries.reserve(2 * ranks_.size() + 8);
  entries.push_back({signals_.get(), POLLIN, 0});
  entries.push_back({server_.event_fd(), POLLIN, 0});
  entries.push_back({exec_errors_.get(), POLLIN, 0});
  if (terminal_.wants_read()) entries.push_back({0, POLLIN, 0});
  if (terminal_.wants_write()) entries.push_back({terminal_.rank_fd(), POLLOUT, 0});
  for (int stream = 0; stream < 2; ++stream) {
    if (!sinks_[stream].empty()) entries.push_back({sinks_[stream].fd(), POLLOUT, 0});
  }
  const std::size_t first_output = entries.size();
  if (!sinks_.full()) {
    for (const Rank& rank : ranks_) {
      for (const base::UniqueFd& output : rank.child.output) {
        // A closed stream stays in the list as -1, which poll(2) skips: the place names the rank.
        entries.push_back({output.get(), POLLIN, 0});
      }
    }
  }
  if (poll(entries.data(), entries.size(), wait_ms()) <= 0) return;
  sinks_.flush();
  for (std::size_t at = first_output; at < entries.size(); ++at) {
    const std::size_t stream = at - first_output;
    if (entries[at].revents != 0) {
      read_output(ranks_[stream / 2], static_cast<int>(stream % 2));
    }
  }
  for (std::size_t at = 3; at < first_output; ++at) {
    if (entries[at].revents != 0) dispatch(entries[at].fd, (entries[at].events & POLLIN) != 0);
  }
  sinks_.flush();
  // Causes before effects: a rank that aborted or could not start is then also seen to end.
  on_aborts();
  on_exec_errors();
  on_signals();
}

void Job::dispatch(int fd, bool readable) {
  if (readable && fd == 0) terminal_.on_readable();
  if (!readable && terminal_.open() && fd == terminal_.rank_fd()) terminal_.on_writable();
}

void Job::read_output(Rank& rank, int stream) {
  base::UniqueFd& output = rank.child.output[stream];
  LineCutter& lines = rank.lines[static_cast<std::size_t>(stream)];
  Sink& sink = sinks_[stream];
  // Nobody reads this any more: closing makes the rank see it, as in a shell's pipeline.
  if (sink.broken()) output.reset();
  if (!output) return;
  char bytes[16384];
  const ssize_t got = read(output.get(), bytes, sizeof bytes);
  if (got > 0) {
    lines.take({bytes, static_cast<std::size_t>(got)}, sink);
    return;
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  lines.finish(sink);
  output.reset();
}

void Job::on_aborts() {
  for (const AbortRequest& request : server_.take_aborts()) {
    if (request.rank < 0 || static_cast<std::size_t>(request.rank) >= ranks_.size()) continue;
    const Rank& rank = ranks_[static_cast<std::size_t>(request.rank)];
    const int code = request.exit_code & 0xff;
    end_job(code != 0 ? code : 1, fmt::format("rank {} (pid {}) aborted the job with code {}{}{}",
                                              request.rank, rank.child.pid, request.exit_code,
                                              request.why.empty() ? "" : ": ", request.why));
  }
}

void Job::on_exec_errors() {
  ExecError error{};
  while (read(exec_errors_.get(), &error, sizeof error) == sizeof error) {
    end_job(error.error_number == ENOENT ? 127 : 126,
            fmt::format("cannot run {} as rank {}: {}", options_.command.front(), error.rank,
                        base::errno_text(error.error_number)),
            false);
  }
}

void Job::on_signals() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number != SIGCHLD) on_forwarded_signal(number);
  }
  on_children();
}

void Job::on_forwarded_signal(int number) {
  if (number == SIGTSTP) return suspend();
  if (number == SIGUSR1 || number == SIGUSR2 || number == SIGCONT) return signal_ranks(number);
  if (interrupted_) return kill_now();
  interrupted_ = true;
  signal_ranks(number);
  signal_ranks(SIGCONT);
  if (failed_) return;
  failed_ = true;
  exit_code_ = 128 + number;
  if (running_ == 0) output_deadline_ = base::Deadline::after(kOutputGrace);
  kill_deadline_ = base::Deadline::after(kInterruptGrace);
  sinks_.message(fmt::format("received SIG{}; ending the job", sigabbrev_np(number)));
}

/// Ctrl-Z: the ranks are not in the terminal's foreground group, so they are stopped from here.
void Job::suspend() {
  signal_ranks(SIGSTOP);
  raise(SIGSTOP);
  signal_ranks(SIGCONT);
}

void Job::on_children() {
  while (true) {
    siginfo_t info{};
    // The process stays a zombie first: its number, and with it that of its group, cannot be taken
    // by another process until what is left of the group is gone.
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    Rank* rank = find(info.si_pid);
    if (rank != nullptr) {
      kill(-info.si_pid, SIGKILL);
      Janitor::report(janitor_fd_, -info.si_pid);
    }
    waitpid(info.si_pid, nullptr, 0);
    if (rank != nullptr) on_rank_end(*rank, info);
    if (info.si_pid == server_.pid()) on_server_end(info);
  }
}

/// A rank that died may be the reason for it: see PmixServer.
void Job::on_server_end(const siginfo_t& info) {
  server_.ended();
  if (running_ == 0 || failed_) return;
  const std::string message =
      fmt::format("the PMIx server (pid {}) {}", info.si_pid, describe_end(info));
  if (options_.keep_going) {
    sinks_.message(message + "; ranks that have started go on");
  } else if (!suspect_) {
    blame(kServerLostCode, message + "; ending the job", true);
    suspect_->confirmed = false;
  }
}

void Job::on_rank_end(Rank& rank, const siginfo_t& info) {
  // The rank may have aborted or failed to start just before it ended.
  on_aborts();
  on_exec_errors();
  rank.child.running = false;
  --running_;
  if (const int code = exit_code_of(info); code != 0) {
    const bool go_on = options_.keep_going && running_ > 0;
    const char* what_next = running_ == 0 ? "" : go_on ? "; the others go on" : "; ending the job";
    const auto message = fmt::format("rank {} (pid {}) {}{}", rank.child.rank, info.si_pid,
                                     describe_end(info), what_next);
    if (!options_.keep_going) {
      blame(code, message, may_be_a_reaction(info));
    } else if (!failed_) {
      sinks_.message(message);
      if (exit_code_ == 0) exit_code_ = code;
    }
  }
  if (running_ > 0) return;
  if (suspect_ && suspect_->confirmed) end_job(suspect_->exit_code, suspect_->message);
  job_deadline_ = base::Deadline::never();
  blame_deadline_ = base::Deadline::never();
  kill_deadline_ = base::Deadline::never();
  streams_deadline_ = base::Deadline::after(kStreamsGrace);
  if (failed_) output_deadline_ = base::Deadline::after(kOutputGrace);
}

void Job::blame(int exit_code, const std::string& message, bool may_be_reaction) {
  if (failed_) return;
  if (!may_be_reaction) return end_job(exit_code, message);
  if (suspect_) {
    suspect_->confirmed = true;
    return;
  }
  suspect_ = Suspect{exit_code, message};
  blame_deadline_ = base::Deadline::after(kBlameGrace);
}

void Job::end_job(int exit_code, const std::string& message, bool ask_first) {
  if (failed_) return;
  failed_ = true;
  blame_deadline_ = base::Deadline::never();
  exit_code_ = exit_code;
  sinks_.message(message);
  if (!ask_first) return kill_now();
  signal_ranks(SIGTERM);
  signal_ranks(SIGCONT);
  kill_deadline_ = base::Deadline::after(kFailureGrace);
}

void Job::kill_now() {
  kill_deadline_ = base::Deadline::never();
  signal_ranks(SIGKILL);
}

void Job::signal_ranks(int number) const {
  for (const Rank& rank : ranks_) {
    if (rank.child.running) kill(-rank.child.pid, number);
  }
}

void Job::check_clocks() {
  if (job_deadline_.passed()) {
    job_deadline_ = base::Deadline::never();
    end_job(kTimeoutCode, fmt::format("the job did not end within {} s (--timeout); ending it",
                                      static_cast<double>(options_.timeout.count()) / 1000));
  }
  if (blame_deadline_.passed()) end_job(suspect_->exit_code, suspect_->message);
  if (kill_deadline_.passed()) kill_now();
  if (streams_deadline_.passed()) close_streams();
}

/// All ranks have ended and so has their process group: what is in the pipes now is all there is.
void Job::close_streams() {
  streams_deadline_ = base::Deadline::never();
  // More reads than a full pipe needs, but not for ever: an escaped process may go on writing.
  constexpr int kMostReads = 16;
  for (Rank& rank : ranks_) {
    for (int stream = 0; stream < 2; ++stream) {
      for (int count = 0; count < kMostReads; ++count) read_output(rank, stream);
      if (!rank.child.output[stream]) continue;
      rank.lines[static_cast<std::size_t>(stream)].finish(sinks_[stream]);
      rank.child.output[stream].reset();
    }
  }
  sinks_.flush();
}

Job::Rank* Job::find(pid_t pid) {
  for (Rank& rank : ranks_) {
    if (rank.child.pid == pid && rank.child.running) return &rank;
  }
  return nullptr;
}

}  // namespace allrail::launcher::run
