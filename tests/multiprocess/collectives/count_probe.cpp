// A rank that counts what Allrail takes of the system: bytes that it keeps, and what its calls
// allocate, lock and ask of the kernel. Links the public library only.
//   count-probe kept
//   count-probe quiet bytes=N algorithm=NAME calls=N plans=N memory=node
//   count-probe started bytes=N algorithm=NAME calls=N plans=N
//   count-probe processor bytes=N calls=N late_ms=N
//   count-probe switches bytes=N calls=N
//   count-probe away late_ms=N
// With `plans`, allgathers are so many plans that are in flight together. Each call of `quiet` is
// entered by one rank, in turn, a moment later than by the others. `started` counts start() and
// test() alone and lets others run between them, as a program does that computes there. Only the
// thread that makes the calls is counted. `processor` tells how much processor time a call takes,
// which other programs do not add to; rank 0 sleeps for `late_ms` before each. `switches` binds
// each rank to a cpu and tells how often it lost that though it wanted to go on, by a yield or at
// the end of a time slice. `away` tells what the other threads of a rank take while it sleeps for
// `late_ms` behind the start of a plan that the last rank starts after that time. Exit code 77
// where counting is impossible: a sanitizer has these functions for itself, or the kernel reports
// no system calls.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <thread>

#include <sched.h>
#include <sys/resource.h>

#include "tests/multiprocess/collectives/counters.hpp"
#include "tests/multiprocess/collectives/probe_support.hpp"

namespace {

constexpr int kCannotCount = 77;
constexpr int kCallsTogether = 10;

/// The fewest sends of any few calls in a row: a busy machine makes waits long, and ranks that wait
/// for long send more, but not in all calls.
class FewestSends {
 public:
  void call_ended() {
    if (++calls_ % kCallsTogether != 0) return;
    const std::uint64_t sends = counters::sends();
    fewest_ = std::min(fewest_, sends - before_);
    before_ = sends;
  }
  std::uint64_t fewest() const { return fewest_; }

 private:
  int calls_ = 0;
  std::uint64_t before_ = 0;
  std::uint64_t fewest_ = UINT64_MAX;
};

int run_kept() {
  const std::size_t before = counters::live_bytes();
  const auto communicator = allrail::Communicator::world();
  // The least of many looks: what the links hold of messages under way comes and goes.
  std::size_t kept = counters::live_bytes() - before;
  for (int look = 0; look < 40; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    kept = std::min(kept, counters::live_bytes() - before);
  }
  probe::say("rank " + std::to_string(communicator.rank()) + " keeps " + std::to_string(kept));
  return 0;
}

int run_quiet(const probe::Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  const auto bytes = static_cast<std::size_t>(arguments.number("bytes", 64));
  const auto calls = static_cast<int>(arguments.number("calls", 2000));
  allrail::CallOptions options;
  options.algorithm = arguments.text("algorithm", "auto");
  if (options.algorithm == "auto") options.algorithm.clear();
  std::vector<unsigned char> send(bytes, 1);
  const std::size_t total = bytes * static_cast<std::size_t>(communicator.size());
  std::vector<unsigned char> receive(total);
  allrail::NodeBuffer<unsigned char> shared;
  const bool is_shared = arguments.text("memory", "") == "node";
  if (is_shared) shared = communicator.allocate_node_shared<unsigned char>(total);
  allrail::Buffer<unsigned char> send_buffer, buffer;
  const bool in_buffers = arguments.text("memory", "") == "buffer";
  if (in_buffers) {
    send_buffer = communicator.allocate<unsigned char>(bytes);
    buffer = communicator.allocate<unsigned char>(total);
  }
  // Each has a receive buffer of its own.
  const auto in_flight = static_cast<std::size_t>(arguments.number("plans", 0));
  std::vector<std::vector<unsigned char>> results(in_flight, receive);
  std::vector<allrail::Plan> plans;
  for (auto& result : results) plans.push_back(communicator.plan_allgather(send, result, options));
  const auto call = [&](int number) {
    if (number % 2 == 0) {
      communicator.barrier();
    } else if (!plans.empty()) {
      for (auto& plan : plans) plan.start();
      while (!plans.front().test()) {
      }
      for (auto& plan : plans) plan.wait();
    } else {
      communicator.allgather(
          std::span<const unsigned char>(in_buffers ? std::span(send_buffer) : std::span(send)),
          is_shared    ? std::span(shared)
          : in_buffers ? std::span(buffer)
                       : std::span(receive),
          options);
    }
  };
  // Slots, vectors and links have been used once, by both kinds of calls.
  for (int i = 0; i < 300; ++i) call(i);
  int without_system_call = 0;
  FewestSends sends;
  for (int i = 0; i < calls; ++i) {
    // Long enough for the others to enter, too short for them to fall asleep.
    if (i / 2 % communicator.size() == communicator.rank()) probe::sleep_seconds(0.0001);
    const std::uint64_t before = counters::system_calls();
    if (!counters::start()) return kCannotCount;
    call(i);
    counters::stop();
    if (counters::system_calls() == before) ++without_system_call;
    sends.call_ended();
  }
  probe::say("rank " + std::to_string(communicator.rank()) + " allocations " +
             std::to_string(counters::allocations()) + " locks " +
             std::to_string(counters::locks()) + " without " + std::to_string(without_system_call) +
             " fewest-sends " + std::to_string(sends.fewest()) + " calls " +
             counters::system_call_text());
  communicator.barrier();
  return 0;
}

int run_started(const probe::Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  const auto bytes = static_cast<std::size_t>(arguments.number("bytes", 64));
  const auto calls = static_cast<int>(arguments.number("calls", 200));
  allrail::CallOptions options;
  options.algorithm = arguments.text("algorithm", "auto");
  if (options.algorithm == "auto") options.algorithm.clear();
  const std::vector<unsigned char> send(bytes, 1);
  std::vector<std::vector<unsigned char>> results(
      static_cast<std::size_t>(arguments.number("plans", 1)),
      std::vector<unsigned char>(bytes * static_cast<std::size_t>(communicator.size())));
  std::vector<allrail::Plan> plans;
  for (auto& result : results) plans.push_back(communicator.plan_allgather(send, result, options));
  std::uint64_t tests = 0;
  const auto call = [&](bool counted) {
    const auto quietly = [counted](const auto& work) {
      if (counted) counters::start();
      work();
      if (counted) counters::stop();
    };
    for (auto& plan : plans) quietly([&] { plan.start(); });
    for (auto& plan : plans) {
      for (bool ended = false; !ended;) {
        quietly([&] { ended = plan.test(); });
        ++tests;
        if (!ended) std::this_thread::yield();
      }
    }
  };
  for (int i = 0; i < 100; ++i) call(false);
  if (!counters::start()) return kCannotCount;
  counters::stop();
  tests = 0;
  for (int i = 0; i < calls; ++i) {
    if (i % communicator.size() == communicator.rank()) probe::sleep_seconds(0.002);
    call(true);
  }
  // Nobody sleeps in the barrier while others still count: to wake it would be a system call.
  call(false);
  probe::say("rank " + std::to_string(communicator.rank()) + " allocations " +
             std::to_string(counters::allocations()) + " locks " +
             std::to_string(counters::locks()) + " tests " + std::to_string(tests) + " calls " +
             counters::system_call_text());
  communicator.barrier();
  return 0;
}

/// Of the thread that asks, or of the process, in the program and in the kernel.
std::int64_t processor_us(int of_whom = RUSAGE_THREAD) {
  rusage usage{};
  ::getrusage(of_whom, &usage);
  const auto us = [](const timeval& time) { return time.tv_sec * 1'000'000L + time.tv_usec; };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

int run_processor(const probe::Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  const auto calls = static_cast<int>(arguments.number("calls", 1000));
  const auto late_s = 1e-3 * static_cast<double>(arguments.number("late_ms", 0));
  const std::vector<unsigned char> send(static_cast<std::size_t>(arguments.number("bytes", 8)), 1);
  std::vector<unsigned char> whole(send.size() * static_cast<std::size_t>(communicator.size()));
  communicator.allgather(send, whole);
  const std::int64_t before_us = processor_us();
  for (int i = 0; i < calls; ++i) {
    if (communicator.rank() == 0 && late_s > 0) probe::sleep_seconds(late_s);
    communicator.allgather(send, whole);
  }
  const std::int64_t took_us = processor_us() - before_us;
  probe::say("rank " + std::to_string(communicator.rank()) + " took " +
             std::to_string(took_us / calls) + " us a call");
  communicator.barrier();
  return 0;
}

/// Of the cpus that it may run on, the one that is due to this rank.
void bind(int rank) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int left = rank % CPU_COUNT(&allowed);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || left-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

std::int64_t lost_cpu() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

int run_switches(const probe::Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  bind(communicator.rank());
  const auto calls = static_cast<int>(arguments.number("calls", 1000));
  const std::vector<unsigned char> send(static_cast<std::size_t>(arguments.number("bytes", 8)), 1);
  std::vector<unsigned char> whole(send.size() * static_cast<std::size_t>(communicator.size()));
  communicator.allgather(send, whole);
  const std::int64_t before = lost_cpu();
  for (int i = 0; i < calls; ++i) communicator.allgather(send, whole);
  probe::say("rank " + std::to_string(communicator.rank()) + " lost its cpu " +
             std::to_string(lost_cpu() - before) + " times");
  communicator.barrier();
  return 0;
}

int run_away(const probe::Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  const auto late_s = 1e-3 * static_cast<double>(arguments.number("late_ms", 1000));
  const std::vector<unsigned char> send(64, 1);
  std::vector<unsigned char> whole(send.size() * static_cast<std::size_t>(communicator.size()));
  auto plan = communicator.plan_allgather(send, whole);
  plan.start();
  plan.wait();
  communicator.barrier();
  const bool is_late = communicator.rank() == communicator.size() - 1;
  if (!is_late) plan.start();
  const auto others_us = [] { return processor_us(RUSAGE_SELF) - processor_us(); };
  const std::int64_t before_us = others_us();
  probe::sleep_seconds(late_s);
  // Of two looks one after the other.
  const std::int64_t took_us = std::max<std::int64_t>(0, others_us() - before_us);
  if (is_late) plan.start();
  plan.wait();
  probe::say("rank " + std::to_string(communicator.rank()) + " took " + std::to_string(took_us) +
             " us a call");
  communicator.barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (!counters::can_count()) return kCannotCount;
  try {
    const probe::Arguments arguments(argc, argv);
    if (arguments.mode() == "kept") return run_kept();
    if (arguments.mode() == "processor") return run_processor(arguments);
    if (arguments.mode() == "switches") return run_switches(arguments);
    if (arguments.mode() == "away") return run_away(arguments);
    return arguments.mode() == "started" ? run_started(arguments) : run_quiet(arguments);
  } catch (const allrail::Error& error) {
    probe::say("error: " + probe::describe(error));
    return probe::kErrorCode;
  }
}
