// Prints what a flag exchange and a wake-up cost between two pinned processes.
#include <algorithm>
#include <cstdio>

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/clock.hpp"
#include "shm/segment.hpp"
#include "shm/wait.hpp"

namespace {

using namespace allrail;

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ::sched_setaffinity(0, sizeof(set), &set);
}

/// Both raise their flag and wait for the other's. Nanoseconds per exchange, of the best of some
/// batches: the machine may be busy with other things.
double exchange_ns(const shm::NodeSegment& segment, int rank, std::uint64_t& turn,
                   const shm::WaitPolicy& policy, std::uint64_t turns) {
  constexpr int kBatches = 20;
  shm::SharedCore core(-1);
  double best_ns = 1e18;
  const shm::Flag& other = segment.flag(0, 1 - rank);
  for (int batch = 0; batch < kBatches; ++batch) {
    const std::int64_t started_ns = base::now_ns();
    for (const std::uint64_t end = turn + turns; turn < end;) {
      ++turn;
      shm::raise(segment, 0, rank, turn, 0, 0);
      shm::Backoff backoff(policy, core);
      while (!shm::reached(other, turn)) backoff.pause();
    }
    const auto took_ns = static_cast<double>(base::now_ns() - started_ns);
    best_ns = std::min(best_ns, took_ns / static_cast<double>(turns));
  }
  return best_ns;
}

/// One rank after the other, and whoever waits sleeps at once: nanoseconds from raise to the other
/// rank's seeing it.
double wake_ns(const shm::NodeSegment& segment, int rank, std::uint64_t turns) {
  const shm::Flag& other = segment.flag(1, 1 - rank);
  const std::int64_t started_ns = base::now_ns();
  for (std::uint64_t turn = 1; turn <= turns; ++turn) {
    const std::uint64_t awaited = rank == 0 ? turn - 1 : turn;
    while (!shm::reached(other, awaited)) {
      shm::sleep_until(
          segment, rank, [&] { return shm::reached(other, awaited); }, 50);
    }
    shm::raise(segment, 1, rank, turn, 0, 0);
  }
  return static_cast<double>(base::now_ns() - started_ns) / static_cast<double>(2 * turns);
}

void measure(const shm::NodeSegment& segment, int rank) {
  pin(rank);
  std::uint64_t turn = 0;
  const double spinning = exchange_ns(segment, rank, turn, {1'000'000'000, 0}, 20'000);
  const double sleeping = wake_ns(segment, rank, 20'000);
  pin(0);
  const double yielding = exchange_ns(segment, rank, turn, {0, 1'000'000'000}, 2'000);
  if (rank != 0) return;
  std::printf("exchange of two flags, own cores: %.0f ns\n", spinning);
  std::printf("raise to wake-up of a sleeper, own cores: %.0f ns\n", sleeping);
  std::printf("exchange of two flags, one core, yielding: %.0f ns\n", yielding);
  std::printf("membarrier: %s\n", shm::sleeps_by_membarrier() ? "yes" : "no");
}

}  // namespace

int main() {
  shm::SegmentLayout request;
  request.ranks = 2;
  const auto views = shm::NodeSegment::in_memory(shm::lay_out(request));
  const pid_t child = ::fork();
  if (child == 0) {
    measure(views[1], 1);
    ::_exit(0);
  }
  measure(views[0], 0);
  ::waitpid(child, nullptr, 0);
  return 0;
}
