// allrail-info simulate: the real schedules of a job that need not exist, and the cost model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "lib/simulation.hpp"

namespace allrail::perf {

/// Parameters that the command line names go before those of the file.
struct ModelQuestion {
  std::string file;
  std::optional<double> latency_us, message_us, post_us, arrival_us, copy_MBps, memory_MBps,
      flag_us, hop_us;
  std::optional<double> oversubscription, uplink_MBps, background, far_share;
  std::optional<int> domains, rail_domain;
  std::vector<double> rail_MBps;
  std::vector<int> leaf_size;
  std::string stripe_bytes;
  std::string local_puts;
  bool own_ports = false;
};

struct SimulationQuestion {
  bool asked = false;
  std::string collective;
  std::string bytes;  // one size, a list or a range, as in allrail-bench --sizes
  int nodes = 4;
  int ranks_per_node = 1;
  std::string node_sizes;
  int rails = 0;  // 0: as many as the model has
  int root = 0;
  int ports = 1;
  int leaders = 1;
  std::string broadcast_segment;  // empty: as by default
  std::string algorithm = "all";
  bool json = false;
  ModelQuestion model;
};

void add_simulate(CLI::App& app, SimulationQuestion& question);
int show_simulation(const SimulationQuestion& question);

}  // namespace allrail::perf
