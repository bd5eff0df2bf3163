// A rank for the tests of collectives, of faults and of bad input. Links the public library only.
//   collective-probe MODE NAME=VALUE...
// With forbid=R, or forbid=all, the system refuses rank R, or all, to read other processes' memory.
// With hidden=R rank R is a process that others may not look into.
// Exit codes: 0 as expected, 1 wrong bytes, 2 no such mode, 42 an Error, which is printed as
// `rank R error: CODE peer P at SECONDS: TEXT`; `rank R after SECONDS` is how long that took.
#include <cstdlib>
#include <iostream>

#include <malloc.h>

#include "tests/multiprocess/collectives/probe_support.hpp"

namespace {

int run(const probe::Arguments& arguments) {
  const std::string& mode = arguments.mode();
  if (mode == "grid") return probe::run_grid(arguments);
  if (mode == "sequence") return probe::run_sequence(arguments);
  if (mode == "rooted-grid") return probe::run_rooted_grid(arguments);
  if (mode == "rooted-sequence") return probe::run_rooted_sequence(arguments);
  if (mode == "rooted-registrations") return probe::run_rooted_registrations(arguments);
  if (mode == "rooted-leaders") return probe::run_rooted_leaders(arguments);
  if (mode == "repeats") return probe::run_repeats(arguments);
  if (mode == "repeats-put") return probe::run_repeats_put(arguments);
  if (mode == "splits") return probe::run_splits(arguments);
  if (mode == "split-plans") return probe::run_split_plans(arguments);
  if (mode == "split-lifetimes") return probe::run_split_lifetimes(arguments);
  if (mode == "split-refused") return probe::run_split_refused(arguments);
  if (mode == "split-switches") return probe::run_split_switches(arguments);
  if (mode == "split-loop") return probe::run_split_loop(arguments);
  if (mode == "split-fault") return probe::run_split_fault(arguments);
  if (mode == "huge") return probe::run_huge(arguments);
  if (mode == "loop") return probe::run_loop(arguments);
  if (mode == "die-in-call") return probe::run_die_in_call(arguments);
  if (mode == "leave") return probe::run_leave(arguments);
  if (mode == "leave-root") return probe::run_leave_root(arguments);
  if (mode == "bad" || mode == "mismatch") return probe::run_bad_input(arguments);
  if (mode == "plans") return probe::run_plans(arguments);
  if (mode == "mixed-plans") return probe::run_mixed_plans(arguments);
  if (mode == "barriers") return probe::run_barriers(arguments);
  if (mode == "pace") return probe::run_pace(arguments);
  if (mode == "stream") return probe::run_stream(arguments);
  if (mode == "plan-loop") return probe::run_plan_loop(arguments);
  if (mode == "plan-helper") return probe::run_plan_helper(arguments);
  if (mode == "plan-misuse") return probe::run_plan_misuse(arguments);
  if (mode == "two-threads") return probe::run_two_threads(arguments);
  if (mode == "buffers") return probe::run_buffers(arguments);
  if (mode == "remap") return probe::run_remap(arguments);
  if (mode == "too-large") return probe::run_too_large(arguments);
  if (mode == "buffer-plans") return probe::run_buffer_plans(arguments);
  if (mode == "buffer-gone") return probe::run_buffer_gone(arguments);
  if (mode == "node-buffers") return probe::run_node_buffers(arguments);
  if (mode == "scribble") return probe::run_scribble(arguments);
  if (mode == "unreadable") return probe::run_unreadable(arguments);
  if (mode == "forbid-late") return probe::run_forbid_late(arguments);
  if (mode == "node-buffer-faults") return probe::run_node_buffer_faults(arguments);
  std::cerr << "collective-probe: no mode '" << mode << "'\n";
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const char* rank = std::getenv("PMIX_RANK");
  const std::string prefix = std::string("rank ") + (rank != nullptr ? rank : "0");
  // Most calls have buffers of their own: to fetch their pages from the system each time would be
  // half of what large ones take.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  const double began = probe::now_seconds();
  try {
    const probe::Arguments arguments(argc, argv);
    const std::string forbidden = arguments.text("forbid", "");
    if (forbidden == "all" || (rank != nullptr && forbidden == rank)) probe::forbid_reading();
    if (rank != nullptr && arguments.text("hidden", "") == rank) probe::hide_memory();
    return run(arguments);
  } catch (const probe::WrongBytes& wrong) {
    probe::say(prefix + " " + wrong.what());
    return 1;
  } catch (const allrail::Error& error) {
    probe::say(prefix + " error: " + probe::describe(error));
    probe::say(prefix + " after " + std::to_string(probe::now_seconds() - began));
    return probe::kErrorCode;
  }
}
