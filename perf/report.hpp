// The rows of the benchmark: as a table on stdout, as JSON in a file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <allrail/communicator.hpp>

#include "perf/arrivals.hpp"
#include "perf/bench_options.hpp"
#include "perf/statistics.hpp"

namespace allrail::perf {

/// What computation between start and wait of a plan costs.
struct Overlap {
  double compute_us = 0;  // the computation alone; the call alone is the row's time_us
  double both_us = 0;     // both at once
  int tests = 0;          // calls of test() in the computation, at most
  double percent = 0;     // of the shorter of the two that is hidden behind the other
};

/// The part of min(call, compute) that does not show in `both_us`, within 0 and 100.
double overlap_percent(double call_us, double compute_us, double both_us);

struct Row {
  std::string collective;
  std::string blocks;  // of a v-form how they differ; else empty
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
  std::optional<Overlap> overlap;
  std::optional<Skew> skew;
};

/// Puts of one size between rank 0 and `peer`, over one rail or striped over all.
struct PutRow {
  std::string rail;
  int peer = 0;
  std::uint64_t bytes = 0;
  int iterations = 0;
  double latency_us = 0;  // half a round trip, the median
  double average_us = 0;
  double one_way_MBps = 0;
  double both_ways_MBps = 0;
};

/// What all rows have in common.
struct Context {
  int ranks = 1, nodes = 1, rails = 0;
  std::string command;
  Mode mode = Mode::Isolated;
  std::string leader_policy;
  // Of the node of rank 0: what its segment takes, and what of that calls have as slots.
  std::uint64_t segment_bytes = 0, slot_bytes = 0;
};

void print_header(const Context& context, const BenchOptions& options);
void print_row(const Row& row);
/// The same with what was measured of overlap.
void print_overlap_header(const Context& context, const BenchOptions& options);
void print_overlap_row(const Row& row);
/// The same with what was measured of calls that ranks came to at different times.
void print_skew_header(const Context& context, const BenchOptions& options);
void print_skew_row(const Row& row);

void print_put_header(int peer, int rails);
void print_put_row(const PutRow& row);

/// Writes context, rows and rail counters. Throws Error{ResourceLimit} if the file cannot be
/// written.
void write_json(const std::string& file, const Context& context, const std::vector<Row>& rows,
                const std::vector<RailStatistics>& rails);
void write_json(const std::string& file, const Context& context, const std::vector<PutRow>& rows,
                const std::vector<RailStatistics>& rails);

}  // namespace allrail::perf
