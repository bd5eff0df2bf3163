#include "launcher/bootstrap.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include <unistd.h>

#include "launcher/pmix_calls.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/base/log.hpp"

namespace allrail::launcher {
namespace {

// The version of what exchange() carries. Ranks of different versions do not find each other's
// key and say so, instead of reading each other's blobs wrongly.
constexpr const char* kBlobKey = "allrail.1";
// PMIx servers before this one neither answer all keys used here nor talk to today's clients.
constexpr int kOldestServer = 3;
// Leaving and aborting talk to a server on this host. It gets this long on a busy machine; a
// server that is gone is noticed at once, so only a stopped one costs all of it.
constexpr std::chrono::seconds kLeaveTimeout{5};
// What the client library has at hand takes no longer, on a busy machine.
constexpr std::chrono::seconds kLocalTimeout{2};

std::string environment_or(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

std::string client_version() {
  // "OpenPMIx 4.2.2 (PMIx Standard: ...)": the second word is the version.
  std::string text = PMIx_Get_version();
  const std::size_t digit = text.find_first_of("0123456789");
  if (digit == std::string::npos) return text;
  return text.substr(digit, text.find_first_of(", (", digit) - digit);
}

std::string server_version() { return environment_or("PMIX_VERSION", "of unknown version"); }

bool launcher_in_environment() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with("PMIX_NAMESPACE=") || text.starts_with("PMIX_RANK=") ||
        text.starts_with("PMIX_SERVER_URI")) {
      return true;
    }
  }
  return false;
}

/// The tail of every message: who talked to whom.
std::string where(const std::string& job, const std::string& rank) {
  return fmt::format("job {}, rank {}, PMIx client {}, server {}", job, rank, client_version(),
                     server_version());
}

std::string where_from_environment() {
  return where(environment_or("PMIX_NAMESPACE", "unknown"), environment_or("PMIX_RANK", "unknown"));
}

std::string status_text(pmix_status_t status) {
  return fmt::format("{} ({})", PMIx_Error_string(status), status);
}

std::vector<int> parse_ranks(const std::string& list) {
  std::vector<int> ranks;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at < end) {
    int first = 0;
    auto result = std::from_chars(at, end, first);
    if (result.ec != std::errc()) return {};
    int last = first;
    if (result.ptr < end && *result.ptr == '-') {
      result = std::from_chars(result.ptr + 1, end, last);
      if (result.ec != std::errc()) return {};
    }
    for (int rank = first; rank <= last; ++rank) ranks.push_back(rank);
    at = result.ptr;
    if (at < end && *at++ != ',') return {};
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void check_environment() {
  for (const char* name : {"PMIX_NAMESPACE", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) continue;
    base::fail(Code::Bootstrap,
               "the environment has some variables of a PMIx launcher but no {} ({}); start the "
               "program with a launcher such as prterun or allrail-run, or unset all PMIX_*",
               name, where_from_environment());
  }
  const auto major = major_version(server_version());
  if (major && *major < kOldestServer) {
    base::fail(Code::Bootstrap,
               "the PMIx server of the launcher is too old: Allrail needs version {} or newer "
               "({}); use a newer launcher, or allrail-run on one host",
               kOldestServer, where_from_environment());
  }
}

}  // namespace

struct Bootstrap::State {
  int rank = 0;
  int size = 1;
  std::string job = "singleton";
  bool has_launcher = false;
  // Set when a call to PMIx was abandoned: its thread may hold the locks of the library, so it is
  // not called again.
  bool stuck = false;
  std::chrono::milliseconds timeout{0};
  int exchanges = 0;
  pmix_proc_t self{};

  base::Deadline deadline() const { return base::Deadline::after(timeout); }
  // One second more than our own clock, so that our message, which says more, comes first.
  int server_timeout_s() const { return static_cast<int>(timeout.count() / 1000) + 2; }
  std::string where() const { return launcher::where(job, std::to_string(rank)); }
  pmix_proc_t proc(pmix_rank_t of) const {
    pmix_proc_t result = self;
    result.rank = of;
    return result;
  }

  void connect();
  Reply get_job_value(const char* key);
  void read_job_size();
  void publish(const std::string& key, std::span<const std::byte> blob);
  void fence(bool collect_data);
  std::shared_ptr<Replies> collect(const std::string& key);
  std::vector<std::byte> unwrap(int of, const Reply& reply, const std::string& key) const;
};

void Bootstrap::State::connect() {
  const auto proc = std::make_shared<pmix_proc_t>();
  const auto status =
      call_with_deadline(deadline(), [proc] { return PMIx_Init(proc.get(), nullptr, 0); });
  if (!status) {
    stuck = true;
    base::fail(Code::Timeout,
               "the PMIx server of the launcher did not answer within {} ms ({}); the launcher "
               "hangs or is stopped: restart the job",
               timeout.count(), where_from_environment());
  }
  const bool other_job =
      *status == PMIX_SUCCESS && environment_or("PMIX_NAMESPACE", "") != proc->nspace;
  if (*status == PMIX_ERR_UNREACH || other_job) {
    base::fail(Code::Bootstrap,
               "the PMIX_* variables name a server that cannot be reached: they are stale, or the "
               "launcher is gone ({}); start the program with a launcher, or unset PMIX_* to run "
               "it alone",
               where_from_environment());
  }
  if (*status != PMIX_SUCCESS) {
    base::fail(Code::Bootstrap,
               "PMIx_Init failed: {} ({}); the PMIX_* variables do not belong to a running job, or "
               "client and server do not fit together: unset PMIX_*, or use another launcher",
               status_text(*status), where_from_environment());
  }
  has_launcher = true;
  self = *proc;
  job = proc->nspace;
  rank = static_cast<int>(proc->rank);
}

Reply Bootstrap::State::get_job_value(const char* key) {
  const auto replies = Replies::create(1);
  replies->start_get(0, proc(PMIX_RANK_WILDCARD), key, server_timeout_s());
  if (!replies->wait(deadline())) {
    stuck = true;
    base::fail(Code::Timeout, "the PMIx server did not tell {} within {} ms ({}); restart the job",
               key, timeout.count(), where());
  }
  return (*replies)[0];
}

void Bootstrap::State::read_job_size() {
  const Reply reply = get_job_value(PMIX_JOB_SIZE);
  if (reply.status != PMIX_SUCCESS || !reply.number) {
    base::fail(Code::Bootstrap,
               "the PMIx server does not tell the size of the job: {} ({}); use another launcher",
               status_text(reply.status), where());
  }
  size = static_cast<int>(*reply.number);
  if (rank >= size) {
    base::fail(Code::Bootstrap, "rank {} is outside the job of {} ranks ({}); check PMIX_RANK",
               rank, size, where());
  }
}

void Bootstrap::State::publish(const std::string& key, std::span<const std::byte> blob) {
  // The length goes in front: a blob that was cut short is noticed, and an empty one is not an
  // empty value, which PMIx does not carry.
  const std::uint64_t length = blob.size();
  auto bytes = std::make_shared<std::vector<char>>(sizeof length + blob.size());
  std::memcpy(bytes->data(), &length, sizeof length);
  if (!blob.empty()) std::memcpy(bytes->data() + sizeof length, blob.data(), blob.size());
  const auto status = call_with_deadline(deadline(), [bytes, key] {
    pmix_value_t value{};
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = bytes->data();
    value.data.bo.size = bytes->size();
    const pmix_status_t put = PMIx_Put(PMIX_GLOBAL, key.c_str(), &value);
    return put == PMIX_SUCCESS ? PMIx_Commit() : put;
  });
  if (!status) {
    stuck = true;
    base::fail(Code::Timeout, "the PMIx server took no data within {} ms ({}); restart the job",
               timeout.count(), where());
  }
  if (*status != PMIX_SUCCESS) {
    base::fail(Code::Bootstrap, "PMIx refused {} bytes of start-up data: {} ({})", bytes->size(),
               status_text(*status), where());
  }
}

void Bootstrap::State::fence(bool collect_data) {
  const auto replies = Replies::create(1);
  replies->start_fence(0, collect_data, server_timeout_s());
  const bool answered = replies->wait(deadline());
  if (!answered || (*replies)[0].status == PMIX_ERR_TIMEOUT) {
    stuck = !answered;
    base::fail(Code::Timeout,
               "not all {} ranks reached start-up within {} ms ({}); a rank died, is stopped, or "
               "runs a program that does not use Allrail",
               size, timeout.count(), where());
  }
  if (const pmix_status_t status = (*replies)[0].status; status != PMIX_SUCCESS) {
    base::fail(Code::Bootstrap,
               "the fence of {} ranks at start-up failed: {} ({}); a rank died or the launcher is "
               "gone: its own messages name the cause",
               size, status_text(status), where());
  }
}

std::vector<std::byte> Bootstrap::State::unwrap(int of, const Reply& reply,
                                                const std::string& key) const {
  if (reply.status == PMIX_ERR_NOT_FOUND) {
    base::fail_with_peer(Code::Bootstrap, of,
                         "rank {} did not publish {} ({}); it runs another version of Allrail: "
                         "start all ranks from one installation",
                         of, key, where());
  }
  if (reply.status != PMIX_SUCCESS) {
    base::fail_with_peer(Code::Bootstrap, of,
                         "cannot get the start-up data of rank {}: {} ({}); the rank died, or the "
                         "launcher lost it",
                         of, status_text(reply.status), where());
  }
  std::uint64_t length = 0;
  if (reply.bytes.size() >= sizeof length) {
    std::memcpy(&length, reply.bytes.data(), sizeof length);
    if (length == reply.bytes.size() - sizeof length) {
      return {reply.bytes.begin() + sizeof length, reply.bytes.end()};
    }
  }
  base::fail_with_peer(Code::Bootstrap, of,
                       "the start-up data of rank {} is damaged: {} bytes came ({}); start all "
                       "ranks from one installation",
                       of, reply.bytes.size(), where());
}

std::shared_ptr<Replies> Bootstrap::State::collect(const std::string& key) {
  const auto replies = Replies::create(static_cast<std::size_t>(size));
  for (int of = 0; of < size; ++of) {
    replies->start_get(static_cast<std::size_t>(of), proc(static_cast<pmix_rank_t>(of)),
                       key.c_str(), server_timeout_s());
  }
  if (!replies->wait(deadline())) {
    stuck = true;
    const int missing = static_cast<int>(replies->first_missing());
    base::fail_with_peer(Code::Timeout, missing,
                         "the start-up data of rank {} did not come within {} ms ({}); the rank "
                         "died, or the launcher hangs: restart the job",
                         missing, timeout.count(), where());
  }
  return replies;
}

Bootstrap::Bootstrap(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Bootstrap::Bootstrap(Bootstrap&& other) noexcept = default;
Bootstrap& Bootstrap::operator=(Bootstrap&& other) noexcept {
  if (this != &other) {
    leave();
    state_ = std::move(other.state_);
  }
  return *this;
}
Bootstrap::~Bootstrap() { leave(); }

Bootstrap Bootstrap::start(std::chrono::milliseconds timeout) {
  // Owned by a Bootstrap from the beginning, so that an error after PMIx_Init also leaves the job.
  Bootstrap bootstrap(std::make_unique<State>());
  State& state = *bootstrap.state_;
  state.timeout = timeout;
  if (launcher_in_environment()) {
    check_environment();
    state.connect();
    state.read_job_size();
  }
  return bootstrap;
}

int Bootstrap::rank() const noexcept { return state_->rank; }
int Bootstrap::size() const noexcept { return state_->size; }
const std::string& Bootstrap::job_name() const noexcept { return state_->job; }
bool Bootstrap::has_launcher() const noexcept { return state_->has_launcher; }

std::vector<int> Bootstrap::local_ranks() const {
  if (!state_->has_launcher) return {0};
  const Reply reply = state_->get_job_value(PMIX_LOCAL_PEERS);
  if (reply.status != PMIX_SUCCESS) return {};
  return parse_ranks(reply.text);
}

std::string Bootstrap::leaf_switch() const {
  if (!state_->has_launcher) return {};
  const auto replies = Replies::create(1);
  replies->start_local_get(0, state_->self, PMIX_SWITCH_PEERS);
  // Who does without it starts all the same.
  if (!replies->wait(base::Deadline::after(kLocalTimeout))) return {};
  return (*replies)[0].status == PMIX_SUCCESS ? (*replies)[0].text : std::string();
}

std::vector<std::vector<std::byte>> Bootstrap::exchange(std::span<const std::byte> mine) {
  if (!state_->has_launcher) return {{mine.begin(), mine.end()}};
  // A key is published once; every further exchange has a key of its own.
  std::string key = kBlobKey;
  if (state_->exchanges++ > 0) key += fmt::format(".{}", state_->exchanges);
  state_->publish(key, mine);
  state_->fence(true);
  const auto replies = state_->collect(key);
  // Before anything that may fail here and make this rank leave: with some launchers a get by a
  // slower rank hangs when the rank that it asks for has already left.
  std::exception_ptr fence_failed;
  try {
    state_->fence(false);
  } catch (const Error&) {
    fence_failed = std::current_exception();
  }
  std::vector<std::vector<std::byte>> blobs;
  blobs.reserve(static_cast<std::size_t>(size()));
  for (int of = 0; of < size(); ++of) {
    blobs.push_back(state_->unwrap(of, (*replies)[static_cast<std::size_t>(of)], key));
  }
  // What a rank has published says better what is wrong.
  if (fence_failed) std::rethrow_exception(fence_failed);
  return blobs;
}

void Bootstrap::fence() {
  if (state_->has_launcher) state_->fence(false);
}

void Bootstrap::abort(int exit_code, const std::string& why) noexcept {
  if (!state_->has_launcher || state_->stuck) return;
  try {
    const auto status = call_with_deadline(base::Deadline::after(kLeaveTimeout), [exit_code, why] {
      return PMIx_Abort(exit_code, why.c_str(), nullptr, 0);
    });
    if (!status) state_->stuck = true;
  } catch (const std::exception& error) {
    base::log_warning("cannot tell the launcher to end the job: {}", error.what());
  }
}

void Bootstrap::leave() noexcept {
  if (!state_ || !state_->has_launcher || state_->stuck) return;
  state_->has_launcher = false;
  try {
    const auto status = call_with_deadline(base::Deadline::after(kLeaveTimeout),
                                           [] { return PMIx_Finalize(nullptr, 0); });
    if (!status) base::log_warning("the PMIx server did not answer the goodbye of this rank");
  } catch (const std::exception& error) {
    base::log_warning("cannot leave the job properly: {}", error.what());
  }
}

}  // namespace allrail::launcher
