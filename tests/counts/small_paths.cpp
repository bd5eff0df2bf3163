// Makes calls that need not wait, each kind so many times that every slot has its turns.
//   small-paths build          what it was compiled with
//   small-paths instructions   under callgrind, which collects in allrail_counted_call() alone and
//                              writes one profile per path, in the order of the names printed
//   small-paths system-calls   counts system calls of the same calls
// tests/counts/counts.py runs it. Exit code 77: system calls cannot be counted here.
#include <iostream>
#include <string_view>

#include <gnu/libc-version.h>

#include "tests/counts/paths.hpp"
#include "tests/multiprocess/collectives/counters.hpp"

namespace {

constexpr int kCannotCount = 77;
constexpr int kWarmUp = 40;
constexpr int kCalls = 64;

}  // namespace

extern "C" {
// Callgrind knows these two by name.
[[gnu::noinline, gnu::visibility("default")]] void allrail_counted_call(
    allrail::counts::Path& path) {
  path.call();
}
[[gnu::noinline, gnu::visibility("default")]] void allrail_path_ends() {
  asm volatile("" ::: "memory");
}
}

namespace {

bool make_calls(allrail::counts::Path& path, bool system_calls) {
  for (int i = 0; i < kWarmUp + kCalls; ++i) {
    path.enter();
    if (i < kWarmUp) {
      path.call();
    } else if (!system_calls) {
      allrail_counted_call(path);
    } else {
      if (!counters::start()) return false;
      path.call();
      counters::stop();
    }
    if (!path.leave()) {
      std::cerr << path.name() << ": a rank did not end its call, or received a wrong byte\n";
      std::_Exit(1);
    }
  }
  allrail_path_ends();
  return true;
}

int run(bool system_calls) {
  if (system_calls && !counters::can_count()) return kCannotCount;
  allrail::counts::Paths paths;
  allrail::counts::add_node_paths(paths);
  allrail::counts::add_over_nodes_paths(paths);
  std::uint64_t before = 0;
  for (const auto& path : paths) {
    if (!make_calls(*path, system_calls)) return kCannotCount;
    const std::uint64_t made = counters::system_calls();
    std::cout << path->name() << '\t' << kCalls << '\t' << made - before << '\n';
    before = made;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  try {
    if (what == "build") {
      std::cout << COUNTS_BUILD << ", glibc " << ::gnu_get_libc_version() << '\n';
      return 0;
    }
    if (what == "instructions" || what == "system-calls") return run(what == "system-calls");
  } catch (const std::exception& error) {
    std::cerr << "small-paths: " << error.what() << '\n';
    return 1;
  }
  std::cerr << "usage: small-paths build|instructions|system-calls\n";
  return 2;
}
