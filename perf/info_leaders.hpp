// allrail-info leaders: which ranks talk over rails, for whom, over which rails, and why.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <allrail/options.hpp>

namespace allrail::perf {

struct LeaderQuestion {
  bool asked = false;
  std::string topology_file;
  std::vector<std::string> rails;
  int ranks = 0;
  std::string nodes;
  std::string policy;
  int leaders = 0;
};

void add_leaders(CLI::App& app, LeaderQuestion& question);
/// Of an imagined job where the question describes one, else of the one that this process is in.
int show_leaders(const LeaderQuestion& question, Options options);

}  // namespace allrail::perf
