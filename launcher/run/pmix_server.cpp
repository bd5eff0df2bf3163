#include "launcher/run/pmix_server.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <exception>
#include <optional>
#include <string_view>

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/base/wire.hpp"

namespace allrail::launcher::run {
namespace {

// The kernel cuts names at 15 characters.
constexpr const char* kServerName = "allrail-pmix";
// For all ranks together. Registering one has a shorter limit of its own, which says more.
constexpr std::chrono::seconds kStartLimit{60};

// What the process tells: packets of a kind and its values.
enum class Kind : std::uint8_t {
  Variables,  // of the next rank: their number, and each as a text
  Ready,      // after the variables of the last rank
  Failed,     // why it could not start
  Abort,      // rank, exit code, why
};
constexpr std::size_t kLargestPacket = 64 << 10;
constexpr std::size_t kLongestText = 4 << 10;

void tell(int channel, Kind kind, const base::WireWriter& values = {}) {
  base::WireWriter packet;
  packet.number(static_cast<std::uint8_t>(kind));
  std::vector<std::byte> bytes = packet.bytes();
  bytes.insert(bytes.end(), values.bytes().begin(), values.bytes().end());
  ssize_t sent = 0;
  do {
    sent = ::send(channel, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  // Without a launcher that listens there is nothing left to do here.
  if (sent < 0 && kind != Kind::Abort) _exit(1);
}

void tell_variables(int channel, const std::vector<std::string>& variables) {
  base::WireWriter values;
  values.number(static_cast<std::uint32_t>(variables.size()));
  for (const std::string& variable : variables) values.text(variable);
  tell(channel, Kind::Variables, values);
}

void tell_failure(int channel, std::string_view why) {
  base::WireWriter values;
  values.text(why.substr(0, kLongestText));
  tell(channel, Kind::Failed, values);
}

void tell_abort(int channel, const AbortRequest& request) {
  base::WireWriter values;
  values.number(static_cast<std::int32_t>(request.rank));
  values.number(static_cast<std::int32_t>(request.exit_code));
  values.text(std::string_view(request.why).substr(0, kLongestText));
  tell(channel, Kind::Abort, values);
}

/// The process: only its channel and standard error are shared with the launcher, with which it
/// ends. The signals that the launcher handles stay blocked.
int become_server(int channel, pid_t launcher) {
  prctl(PR_SET_NAME, kServerName);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have died before that line.
  if (getppid() != launcher) _exit(1);
  const int null_fd = open("/dev/null", O_RDWR);
  dup2(null_fd, 0);
  dup2(null_fd, 1);
  constexpr int kChannel = 3;
  if (channel != kChannel) dup2(channel, kChannel);
  syscall(SYS_close_range, kChannel + 1U, ~0U, 0U);
  fcntl(kChannel, F_SETFD, FD_CLOEXEC);
  return kChannel;
}

[[noreturn]] void serve(int channel, const std::string& job, int ranks,
                        const std::string& directory) {
  try {
    start_pmix_library(job, ranks, directory,
                       [channel](const AbortRequest& request) { tell_abort(channel, request); });
    for (int rank = 0; rank < ranks; ++rank) tell_variables(channel, announce_rank(job, rank));
    tell(channel, Kind::Ready);
  } catch (const std::exception& error) {
    tell_failure(channel, error.what());
    _exit(1);
  }
  char nothing = 0;
  while (read(channel, &nothing, sizeof nothing) < 0 && errno == EINTR) {
  }
  _exit(0);
}

/// The next packet, if there is one: no bytes at the end of the process.
std::optional<std::vector<std::byte>> next_packet(int channel) {
  std::vector<std::byte> packet(kLargestPacket);
  const ssize_t got = recv(channel, packet.data(), packet.size(), MSG_DONTWAIT | MSG_TRUNC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  // Of one that is too long, its true length: as good as the end.
  const bool whole = got > 0 && static_cast<std::size_t>(got) <= packet.size();
  packet.resize(whole ? static_cast<std::size_t>(got) : 0);
  return packet;
}

std::string_view name_of(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

}  // namespace

PmixServer::PmixServer(const std::string& job, int ranks, const std::string& directory) {
  int ends[2];
  base::check_minus_one(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends),
                        "creating a channel to the PMIx server");
  channel_ = base::UniqueFd(ends[0]);
  base::UniqueFd theirs(ends[1]);
  const pid_t launcher = getpid();
  pid_ = fork();
  if (pid_ == 0) serve(become_server(theirs.get(), launcher), job, ranks, directory);
  base::check_minus_one(pid_, "forking the PMIx server");
  // The end of the process is then also that of the channel.
  theirs.reset();
  try {
    await_start(ranks);
  } catch (...) {
    end();
    throw;
  }
}

void PmixServer::await_start(int ranks) {
  const auto deadline = base::Deadline::after(kStartLimit);
  bool ready = false;
  while (!ready) {
    pollfd entry{channel_.get(), POLLIN, 0};
    if (poll(&entry, 1, deadline.remaining_ms(1000)) <= 0) {
      if (!deadline.passed()) continue;
      base::fail(Code::Bootstrap,
                 "the PMIx server did not start within {} s; check the PMIx installation and "
                 "PMIX_MCA_*",
                 kStartLimit.count());
    }
    const auto packet = next_packet(channel_.get());
    if (!packet) continue;
    base::WireReader reader(*packet);
    const auto kind = static_cast<Kind>(reader.number<std::uint8_t>());
    if (packet->empty() || !reader.ok()) {
      base::fail(Code::Bootstrap,
                 "the PMIx library ended the process of the server while it started; check the "
                 "PMIx installation and PMIX_MCA_*");
    }
    if (kind == Kind::Failed) throw Error(Code::Bootstrap, reader.text());
    if (kind == Kind::Variables) {
      auto& variables = variables_.emplace_back();
      const auto count = reader.number<std::uint32_t>();
      for (std::uint32_t i = 0; i < count && reader.ok(); ++i) variables.push_back(reader.text());
      if (!reader.ok()) base::fail(Code::Internal, "the PMIx server told half a variable");
    }
    ready = kind == Kind::Ready;
  }
  if (static_cast<int>(variables_.size()) != ranks) {
    base::fail(Code::Internal, "the PMIx server announced {} of {} ranks", variables_.size(),
               ranks);
  }
}

void PmixServer::end() noexcept {
  channel_.reset();
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::vector<std::string> PmixServer::environment_of(int rank,
                                                    const std::vector<std::string>& base) const {
  const auto& variables = variables_[static_cast<std::size_t>(rank)];
  std::vector<std::string> environment;
  for (const std::string& entry : base) {
    bool replaced = false;
    for (const std::string& variable : variables) replaced |= name_of(variable) == name_of(entry);
    if (!replaced) environment.push_back(entry);
  }
  environment.insert(environment.end(), variables.begin(), variables.end());
  return environment;
}

std::vector<AbortRequest> PmixServer::take_aborts() {
  std::vector<AbortRequest> aborts;
  while (channel_) {
    const auto packet = next_packet(channel_.get());
    if (!packet) break;
    // Its end is also seen as that of a child.
    if (packet->empty()) channel_.reset();
    base::WireReader reader(*packet);
    if (static_cast<Kind>(reader.number<std::uint8_t>()) != Kind::Abort) continue;
    AbortRequest request{};
    request.rank = reader.number<std::int32_t>();
    request.exit_code = reader.number<std::int32_t>();
    request.why = reader.text();
    if (reader.ok()) aborts.push_back(std::move(request));
  }
  return aborts;
}

}  // namespace allrail::launcher::run
