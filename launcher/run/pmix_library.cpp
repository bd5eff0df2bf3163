#include "launcher/run/pmix_library.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pmix.h>
#include <pmix_server.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/error.hpp"

namespace allrail::launcher::run {
namespace {

// Registering talks to a thread of this process only.
constexpr std::chrono::seconds kServerTimeout{10};

// PMIx passes no pointer of ours to the abort callback. Set before the library starts.
AbortHook the_abort_hook;

void check(pmix_status_t status, const char* action) {
  if (status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED) return;
  base::fail(Code::Bootstrap, "{} failed: {} ({}), {}; check the PMIx installation and PMIX_MCA_*",
             action, PMIx_Error_string(status), status, PMIx_Get_version());
}

/// An array of attributes that is filled one by one.
class Attributes {
 public:
  explicit Attributes(std::size_t count) : count_(count) { PMIX_INFO_CREATE(info_, count_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  ~Attributes() {
    if (info_ != nullptr) PMIX_INFO_FREE(info_, count_);
  }
  void add(const char* key, const std::string& text) { load(key, text.c_str(), PMIX_STRING); }
  void add(const char* key, std::uint32_t number) { load(key, &number, PMIX_UINT32); }
  void add_short(const char* key, std::uint16_t number) { load(key, &number, PMIX_UINT16); }
  void add_rank(const char* key, pmix_rank_t rank) { load(key, &rank, PMIX_PROC_RANK); }
  void add_flag(const char* key, bool value) { load(key, &value, PMIX_BOOL); }
  /// Moves the entries of `inner` into one entry.
  void add_array(const char* key, Attributes& inner) {
    pmix_data_array_t array{};
    array.type = PMIX_INFO;
    array.size = inner.used_;
    array.array = inner.info_;
    load(key, &array, PMIX_DATA_ARRAY);
  }
  pmix_info_t* data() const { return info_; }
  std::size_t size() const { return used_; }

 private:
  void load(const char* key, const void* value, pmix_data_type_t type) {
    PMIX_INFO_LOAD(&info_[used_], key, value, type);
    ++used_;
  }
  pmix_info_t* info_ = nullptr;
  std::size_t count_;
  std::size_t used_ = 0;
};

/// The state that the callback of a registration writes.
class Registration {
 public:
  static void done(pmix_status_t status, void* self) {
    auto* registration = static_cast<Registration*>(self);
    const std::lock_guard lock(registration->mutex_);
    registration->status_ = status;
    registration->done_ = true;
    registration->changed_.notify_all();
  }
  /// False: it did not come in time, and may still.
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kServerTimeout, [this] { return done_; });
  }
  pmix_status_t status() const { return status_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  pmix_status_t status_ = PMIX_SUCCESS;
};

/// Calls `start` with a callback and its argument, and waits for the callback.
template <class Start>
void await_registration(const char* action, const Start& start) {
  auto registration = std::make_unique<Registration>();
  const pmix_status_t started = start(Registration::done, registration.get());
  check(started, action);
  if (started == PMIX_OPERATION_SUCCEEDED) return;
  if (!registration->wait()) {
    // The callback may still come and write there.
    static_cast<void>(registration.release());
    base::fail(Code::Bootstrap, "{} did not end within {} s", action, kServerTimeout.count());
  }
  check(registration->status(), action);
}

// ---- what the ranks ask for; in threads of PMIx ----

pmix_status_t on_connected(const pmix_proc_t*, void*, pmix_info_t*, std::size_t,
                           pmix_op_cbfunc_t answer, void* cookie) {
  if (answer != nullptr) answer(PMIX_SUCCESS, cookie);
  return PMIX_SUCCESS;
}

pmix_status_t on_finalized(const pmix_proc_t*, void*, pmix_op_cbfunc_t answer, void* cookie) {
  if (answer != nullptr) answer(PMIX_SUCCESS, cookie);
  return PMIX_SUCCESS;
}

pmix_status_t on_abort(const pmix_proc_t* caller, void*, int status, const char message[],
                       pmix_proc_t*, std::size_t, pmix_op_cbfunc_t answer, void* cookie) {
  the_abort_hook({static_cast<int>(caller->rank), status, message != nullptr ? message : ""});
  if (answer != nullptr) answer(PMIX_SUCCESS, cookie);
  return PMIX_SUCCESS;
}

/// Called once all ranks of a fence have come, since all are on this host: their data is all there
/// is. A copy goes back, released by the library: who owns the original differs between versions.
pmix_status_t on_fence(const pmix_proc_t*, std::size_t, const pmix_info_t*, std::size_t, char* data,
                       std::size_t bytes, pmix_modex_cbfunc_t answer, void* cookie) {
  if (answer == nullptr) return PMIX_SUCCESS;
  char* copy = nullptr;
  if (data != nullptr && bytes > 0) {
    copy = static_cast<char*>(std::malloc(bytes));
    if (copy == nullptr) return PMIX_ERR_NOMEM;
    std::memcpy(copy, data, bytes);
  }
  answer(PMIX_SUCCESS, copy, copy != nullptr ? bytes : 0, cookie, std::free, copy);
  return PMIX_SUCCESS;
}

/// Asks another host for the data of a rank there. There is no other host.
pmix_status_t on_direct_modex(const pmix_proc_t*, const pmix_info_t*, std::size_t,
                              pmix_modex_cbfunc_t, void*) {
  return PMIX_ERR_NOT_FOUND;
}

pmix_server_module_t make_module() {
  pmix_server_module_t module{};
  module.client_connected2 = on_connected;
  module.client_finalized = on_finalized;
  module.abort = on_abort;
  module.fence_nb = on_fence;
  module.direct_modex = on_direct_modex;
  return module;
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string rank_list(int ranks) {
  std::string list;
  for (int rank = 0; rank < ranks; ++rank) list += (rank > 0 ? "," : "") + std::to_string(rank);
  return list;
}

void start_server(const std::string& job, const std::string& directory) {
  static pmix_server_module_t module = make_module();
  Attributes attributes(7);
  attributes.add(PMIX_SERVER_TMPDIR, directory);
  attributes.add(PMIX_SYSTEM_TMPDIR, directory);
  attributes.add(PMIX_SERVER_NSPACE, job + "-server");
  attributes.add_rank(PMIX_SERVER_RANK, 0);
  attributes.add(PMIX_HOSTNAME, host_name());
  attributes.add_flag(PMIX_SERVER_TOOL_SUPPORT, false);
  // Clients of PMIx 5 look for the machine's cores and devices when they start. Here they map what
  // the server has found, or look themselves if that cannot be had.
  attributes.add_flag(PMIX_SERVER_SHARE_TOPOLOGY, true);
  check(PMIx_server_init(&module, attributes.data(), attributes.size()), "PMIx_server_init");
}

/// The library answers ranks over TCP without TCP_NODELAY, and neither tells its sockets nor has a
/// setting for them: an answer then waits until the kernel of the rank acknowledges the one before,
/// which it may put off for 40 ms. Connections inherit the option from the socket that accepts
/// them.
void answer_at_once() {
  // Where they cannot be listed, ranks start later.
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    const int fd = std::atoi(entry->path().filename().c_str());
    int accepts = 0;
    socklen_t bytes = sizeof accepts;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &bytes) != 0 || accepts == 0) continue;
    constexpr int kOn = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &kOn, sizeof kOn);
  }
}

void add_job_values(Attributes& job_values, const std::string& job, int ranks,
                    const std::string& directory) {
  const auto count = static_cast<std::uint32_t>(ranks);
  job_values.add(PMIX_JOBID, job);
  for (const char* key :
       {PMIX_JOB_SIZE, PMIX_UNIV_SIZE, PMIX_MAX_PROCS, PMIX_LOCAL_SIZE, PMIX_NODE_SIZE}) {
    job_values.add(key, count);
  }
  job_values.add(PMIX_NUM_NODES, 1U);
  job_values.add(PMIX_JOB_NUM_APPS, 1U);
  job_values.add(PMIX_NODEID, 0U);
  job_values.add_rank(PMIX_LOCALLDR, 0);
  job_values.add(PMIX_LOCAL_PEERS, rank_list(ranks));
  job_values.add(PMIX_TMPDIR, directory);
  job_values.add(PMIX_NSDIR, directory);
  char* regex = nullptr;
  check(PMIx_generate_regex(host_name().c_str(), &regex), "PMIx_generate_regex");
  job_values.add(PMIX_NODE_MAP, regex);
  std::free(regex);
  check(PMIx_generate_ppn(rank_list(ranks).c_str(), &regex), "PMIx_generate_ppn");
  job_values.add(PMIX_PROC_MAP, regex);
  std::free(regex);
}

void add_rank_values(Attributes& job_values, int rank) {
  Attributes values(7);
  values.add_rank(PMIX_RANK, static_cast<pmix_rank_t>(rank));
  values.add_short(PMIX_LOCAL_RANK, static_cast<std::uint16_t>(rank));
  values.add_short(PMIX_NODE_RANK, static_cast<std::uint16_t>(rank));
  values.add_rank(PMIX_GLOBAL_RANK, static_cast<pmix_rank_t>(rank));
  values.add(PMIX_APPNUM, 0U);
  values.add(PMIX_NODEID, 0U);
  values.add(PMIX_HOSTNAME, host_name());
  job_values.add_array(PMIX_PROC_DATA, values);
}

}  // namespace

void start_pmix_library(const std::string& job, int ranks, const std::string& directory,
                        AbortHook abort_hook) {
  the_abort_hook = std::move(abort_hook);
  // The library looks at TMPDIR in places where it does not look at its attributes.
  setenv("TMPDIR", directory.c_str(), 1);
  // Its store in shared files fills them with zeros and makes every rank map them, for what is a
  // few kilobytes on one host. What the user says goes before.
  setenv("PMIX_MCA_gds", "hash", 0);
  // The library looks for all devices of the machine, which takes longer than all else that it does
  // here. Allrail's ranks do not ask it for them.
  setenv("HWLOC_COMPONENTS", "-linuxio,-pci", 0);
  start_server(job, directory);
  answer_at_once();
  Attributes job_values(16 + static_cast<std::size_t>(ranks));
  add_job_values(job_values, job, ranks, directory);
  for (int rank = 0; rank < ranks; ++rank) add_rank_values(job_values, rank);
  await_registration("PMIx_server_register_nspace", [&](pmix_op_cbfunc_t done, void* argument) {
    return PMIx_server_register_nspace(job.c_str(), ranks, job_values.data(), job_values.size(),
                                       done, argument);
  });
}

std::vector<std::string> announce_rank(const std::string& job, int rank) {
  pmix_proc_t proc{};
  std::strncpy(proc.nspace, job.c_str(), PMIX_MAX_NSLEN);
  proc.rank = static_cast<pmix_rank_t>(rank);
  await_registration("PMIx_server_register_client", [&](pmix_op_cbfunc_t done, void* argument) {
    return PMIx_server_register_client(&proc, getuid(), getgid(), nullptr, done, argument);
  });
  // PMIx grows and frees this array and its strings with realloc and free.
  auto** environment = static_cast<char**>(std::calloc(1, sizeof(char*)));
  if (environment == nullptr) base::fail(Code::ResourceLimit, "no memory for an environment");
  const pmix_status_t status = PMIx_server_setup_fork(&proc, &environment);
  std::vector<std::string> result;
  for (char** entry = environment; *entry != nullptr; ++entry) {
    result.emplace_back(*entry);
    std::free(*entry);
  }
  std::free(environment);
  check(status, "PMIx_server_setup_fork");
  return result;
}

void forget_outer_launcher() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with("PMIX_") || text.starts_with("PMIX_MCA_")) continue;
    names.emplace_back(text.substr(0, text.find('=')));
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

}  // namespace allrail::launcher::run
