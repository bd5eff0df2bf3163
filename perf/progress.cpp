#include "perf/progress.hpp"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/clock.hpp"

namespace allrail::perf {
namespace {

constexpr std::int64_t kSilentNs = 2'000'000'000;  // who waits no longer than this needs no comfort
constexpr std::int64_t kBetweenNs = 200'000'000;

// Of the run, which may print several tables and begins with the start of the job.
const std::int64_t kRunBeginNs = base::now_ns();

/// Or the pipe of a launcher that says of its own stderr that it is one: see allrail-run.
bool stderr_is_terminal() {
  if (::isatty(STDERR_FILENO) == 1) return true;
  const char* told = std::getenv("ALLRAIL_STDERR_IS_TERMINAL");
  struct stat status {};
  return told != nullptr && std::string_view(told) == "1" && ::fstat(STDERR_FILENO, &status) == 0 &&
         S_ISFIFO(status.st_mode);
}

}  // namespace

Progress::Progress(bool speaks, std::size_t rows)
    : shows_(speaks && stderr_is_terminal()), rows_(rows), next_ns_(kRunBeginNs + kSilentNs) {}

void Progress::begin_row(std::string what) {
  what_ = std::move(what);
  if (shows_ && base::now_ns() >= next_ns_) {
    say(fmt::format("{} of {} rows done; now {}", done_, rows_, what_));
  }
}

void Progress::end_row() {
  ++done_;
  erase();
}

void Progress::say_calls(int done, int all) {
  if (base::now_ns() < next_ns_) return;
  say(fmt::format("{} of {} rows done; now {}: {} of {} calls", done_, rows_, what_, done, all));
}

/// From one carriage return to the next, at once: that is what the launcher takes for progress and
/// does not keep until the line ends.
void Progress::say(const std::string& text) {
  fmt::print(stderr, "\r{}\033[K\r", text);
  is_seen_ = true;
  next_ns_ = base::now_ns() + kBetweenNs;
}

void Progress::erase() {
  if (is_seen_) fmt::print(stderr, "\r\033[K\r");
  is_seen_ = false;
}

}  // namespace allrail::perf
