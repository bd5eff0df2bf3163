// allrail-info counters: what each rail did in a finished run of allrail-bench.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace allrail::perf {

struct CountersQuestion {
  bool asked = false;
  std::string file;
};

void add_counters(CLI::App& app, CountersQuestion& question);
/// @throws Error{InvalidArgument} for a file that allrail-bench --json has not written.
int show_counters(const CountersQuestion& question);

}  // namespace allrail::perf
