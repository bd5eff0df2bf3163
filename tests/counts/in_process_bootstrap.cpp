// launcher::Bootstrap over the memory of one process. It defines all of that class, so the linker
// takes nothing of the launcher's own.
#include "tests/counts/in_process_bootstrap.hpp"

#include <barrier>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <numeric>
#include <thread>

#include <sys/eventfd.h>
#include <sys/syscall.h>

#include "launcher/bootstrap.hpp"

/// In place of the C library's: valgrind 3.19 does not know pidfd_open(2). All ranks are this
/// process, so nobody has to be watched: a descriptor that never becomes readable will do.
extern "C" [[gnu::visibility("default")]] long syscall(long number, ...) noexcept {
  if (number == SYS_pidfd_open) return ::eventfd(0, EFD_CLOEXEC);
  long arguments[6];
  va_list list;
  va_start(list, number);
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  long result = number;
  register long fourth asm("r10") = arguments[3];
  register long fifth asm("r8") = arguments[4];
  register long sixth asm("r9") = arguments[5];
  asm volatile("syscall"
               : "+a"(result)
               : "D"(arguments[0]), "S"(arguments[1]), "d"(arguments[2]), "r"(fourth), "r"(fifth),
                 "r"(sixth)
               : "rcx", "r11", "memory");
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

namespace allrail {
namespace {

struct Job {
  explicit Job(int size) : blobs(static_cast<std::size_t>(size)), meeting(size) {}
  std::vector<std::vector<std::byte>> blobs;
  std::barrier<> meeting;
};

thread_local std::shared_ptr<Job> job_here;
thread_local int rank_here = 0;

}  // namespace

struct launcher::Bootstrap::State {
  std::shared_ptr<Job> job = job_here;
  int rank = rank_here;
  std::string name = "counts";
};

namespace launcher {

Bootstrap Bootstrap::start(std::chrono::milliseconds) {
  return Bootstrap(std::make_unique<State>());
}
Bootstrap::Bootstrap(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Bootstrap::Bootstrap(Bootstrap&&) noexcept = default;
Bootstrap& Bootstrap::operator=(Bootstrap&&) noexcept = default;
Bootstrap::~Bootstrap() = default;

int Bootstrap::rank() const noexcept { return state_->rank; }
int Bootstrap::size() const noexcept { return static_cast<int>(state_->job->blobs.size()); }
const std::string& Bootstrap::job_name() const noexcept { return state_->name; }
bool Bootstrap::has_launcher() const noexcept { return true; }

std::vector<int> Bootstrap::local_ranks() const {
  std::vector<int> ranks(state_->job->blobs.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::string Bootstrap::leaf_switch() const { return {}; }

std::vector<std::vector<std::byte>> Bootstrap::exchange(std::span<const std::byte> mine) {
  state_->job->blobs[static_cast<std::size_t>(state_->rank)].assign(mine.begin(), mine.end());
  fence();
  auto all = state_->job->blobs;
  fence();
  return all;
}

void Bootstrap::fence() { state_->job->meeting.arrive_and_wait(); }

void Bootstrap::abort(int exit_code, const std::string& why) noexcept {
  std::cerr << why << '\n';
  std::_Exit(exit_code);
}

}  // namespace launcher

void counts::run_as_ranks(int ranks, const std::function<void(int rank)>& work) {
  const auto job = std::make_shared<Job>(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&work, job, rank] {
      job_here = job;
      rank_here = rank;
      try {
        work(rank);
      } catch (const std::exception& error) {
        std::cerr << "rank " << rank << ": " << error.what() << '\n';
        std::_Exit(1);
      }
      job_here.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace allrail
