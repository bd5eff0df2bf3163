// The rows of the benchmark: as a table on stdout, as JSON in a file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <allrail/communicator.hpp>

#include "perf/bench_options.hpp"
#include "perf/statistics.hpp"

namespace allrail::perf {

struct Row {
  std::string collective;
  std::string algorithm;
  int ports = 1;
  int leaders = 1;
  std::uint64_t bytes_per_rank = 0;
  std::uint64_t bytes_total = 0;
  int iterations = 0;
  TimeStatistics time_us;
  double algbw_GBps = 0;
  double busbw_GBps = 0;
  double rail_limit_percent = -1;  // negative: the rates are not known
  std::uint64_t wrong_bytes = 0;
  bool checked = true;
};

/// What all rows have in common.
struct Context {
  int ranks = 1, nodes = 1, rails = 0;
  std::string command;
  Mode mode = Mode::Isolated;
};

void print_header(const Context& context, const BenchOptions& options);
void print_row(const Row& row);

/// Writes context, rows and rail counters. Throws Error{ResourceLimit} if the file cannot be
/// written.
void write_json(const std::string& file, const Context& context, const std::vector<Row>& rows,
                const std::vector<RailStatistics>& rails);

}  // namespace allrail::perf
