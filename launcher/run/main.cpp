// allrail-run: starts the ranks of a job on this host. It has a small PMIx server, so that an
// Allrail program needs no other launcher.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>
#include <variant>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/run/janitor.hpp"
#include "launcher/run/job.hpp"
#include "launcher/run/options.hpp"
#include "launcher/run/output.hpp"
#include "launcher/run/pmix_library.hpp"
#include "launcher/run/pmix_server.hpp"
#include "lib/base/error.hpp"

namespace allrail::launcher::run {
namespace {

constexpr int kLauncherError = 1;

/// Descriptors 0 to 2 must exist, or the first pipes would take their places.
void open_standard_descriptors() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= 2);
  if (fd > 2) close(fd);
}

/// hwloc would load these into the server and every rank, with the libraries and drivers of
/// displays and GPUs behind them. Without that of PCI it reads the kernel's own list.
void leave_out_plugins() {
  setenv("HWLOC_PLUGINS_BLACKLIST",
         "hwloc_cuda.so,hwloc_gl.so,hwloc_levelzero.so,hwloc_nvml.so,hwloc_opencl.so,hwloc_pci.so,"
         "hwloc_rsmi.so,hwloc_xml_libxml.so",
         0);
}

Inherited prepare_process() {
  Inherited inherited;
  const sigset_t handled = handled_signals();
  sigprocmask(SIG_BLOCK, &handled, &inherited.signal_mask);
  signal(SIGPIPE, SIG_IGN);
  // Whoever started this may have ignored it, and then nobody would be told of ranks that end.
  signal(SIGCHLD, SIG_DFL);
  getrlimit(RLIMIT_NOFILE, &inherited.open_files);
  rlimit raised = inherited.open_files;
  raised.rlim_cur = raised.rlim_max;
  setrlimit(RLIMIT_NOFILE, &raised);
  forget_outer_launcher();
  leave_out_plugins();
  return inherited;
}

/// Names the job; also what the janitor looks for, so it is unique over jobs of other launchers.
std::string make_job_name() {
  std::random_device random;
  return fmt::format("allrail-run-{}-{:08x}", getpid(), random());
}

/// Where the directory of this job will be, which is removed whole in the end. Not under TMPDIR,
/// which may be on a network or have a path too long for a socket, unless there is no other place.
std::string choose_session_directory(const std::string& job_name) {
  const char* fallback = std::getenv("TMPDIR");
  for (const std::string parent : {"/tmp", "/dev/shm", fallback != nullptr ? fallback : "."}) {
    if (access(parent.c_str(), W_OK | X_OK) == 0) return fmt::format("{}/{}", parent, job_name);
  }
  base::fail(Code::ResourceLimit,
             "cannot create a session directory in /tmp, /dev/shm or TMPDIR; make one writable");
}

int run_job(const Options& options, const Inherited& inherited) {
  const Program program = find_program(options.command.front());
  if (program.path.empty()) {
    fmt::print(stderr, "allrail-run: {}\n", program.error);
    return program.exit_code;
  }
  const std::string job_name = make_job_name();
  const std::string directory = choose_session_directory(job_name);
  // Before the directory, so that there is no moment in which a killed launcher leaves it behind.
  Janitor janitor(directory, job_name);
  base::check_minus_one(mkdir(directory.c_str(), 0700), "creating the job's session directory");
  Sinks sinks;
  PmixServer server(job_name, options.ranks, directory);
  return Job(options, server, sinks, janitor.pipe_fd()).run(program.path, inherited);
}

int run(int argc, char** argv) {
  open_standard_descriptors();
  try {
    const auto parsed = parse_options(argc, argv);
    if (const int* exit_code = std::get_if<int>(&parsed)) return *exit_code;
    const Inherited inherited = prepare_process();
    return run_job(std::get<Options>(parsed), inherited);
  } catch (const std::exception& error) {
    fmt::print(stderr, "allrail-run: {}\n", error.what());
    return kLauncherError;
  }
}

}  // namespace
}  // namespace allrail::launcher::run

int main(int argc, char** argv) { return allrail::launcher::run::run(argc, argv); }
