#include "perf/report.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/parse.hpp"
#include "perf/blocks.hpp"

namespace allrail::perf {
namespace {

const char* mode_name(Mode mode) { return mode == Mode::Isolated ? "isolated" : "streaming"; }

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

nlohmann::json to_json(const std::optional<Overlap>& overlap) {
  if (!overlap) return nullptr;
  return {{"compute_us", overlap->compute_us},
          {"both_us", overlap->both_us},
          {"tests", overlap->tests},
          {"percent", overlap->percent}};
}

nlohmann::json to_json(const std::optional<Skew>& skew) {
  if (!skew) return nullptr;
  const TimeStatistics& t = skew->from_last_us;
  return {{"most_us", skew->most_us},
          {"seed", skew->seed},
          {"last_arrival_us", skew->last_arrival_us},
          {"from_last_us",
           {{"min", t.min}, {"avg", t.avg}, {"p50", t.p50}, {"p99", t.p99}, {"max", t.max}}}};
}

std::string wrong_text(const Row& row) {
  return row.checked ? fmt::format("{}", row.wrong_bytes) : std::string("-");
}

const char* checked_text(const BenchOptions& options) {
  if (options.what == "barrier") return "no bytes to check";
  return options.check ? "every byte checked" : "not checked";
}

/// What is measured; of a v-form with the shape of its blocks.
std::string what_text(const BenchOptions& options) {
  if (!is_v_form(options.what)) return options.what;
  return fmt::format("{} --blocks {}", options.what, shape_name(options.blocks));
}

nlohmann::json to_json(const Row& row, const Context& context) {
  nlohmann::json limit;
  if (row.rail_limit_percent >= 0) limit = row.rail_limit_percent;
  nlohmann::json wrong;
  if (row.checked) wrong = row.wrong_bytes;
  nlohmann::json blocks;
  if (!row.blocks.empty()) blocks = row.blocks;
  return {{"collective", row.collective},
          {"blocks", blocks},
          {"algorithm", row.algorithm},
          {"ports", row.ports},
          {"leaders", row.leaders},
          {"ranks", context.ranks},
          {"nodes", context.nodes},
          {"rails", context.rails},
          {"bytes_per_rank", row.bytes_per_rank},
          {"bytes_total", row.bytes_total},
          {"mode", mode_name(context.mode)},
          {"iterations", row.iterations},
          {"time_us",
           {{"min", row.time_us.min},
            {"avg", row.time_us.avg},
            {"p50", row.time_us.p50},
            {"p50_slowest_rank", row.time_us.p50_slowest_rank},
            {"p99", row.time_us.p99},
            {"max", row.time_us.max}}},
          {"algbw_GBps", row.algbw_GBps},
          {"busbw_GBps", row.busbw_GBps},
          {"rail_limit_percent", limit},
          {"overlap", to_json(row.overlap)},
          {"skew", to_json(row.skew)},
          {"wrong_bytes", wrong}};
}

nlohmann::json to_json(const PutRow& row, const Context& context) {
  return {{"collective", "put"},
          {"ranks", context.ranks},
          {"nodes", context.nodes},
          {"rails", context.rails},
          {"peer", row.peer},
          {"rail", row.rail},
          {"bytes", row.bytes},
          {"iterations", row.iterations},
          {"latency_us", row.latency_us},
          {"average_us", row.average_us},
          {"one_way_MBps", row.one_way_MBps},
          {"both_ways_MBps", row.both_ways_MBps}};
}

template <class AnyRow>
void write_document(const std::string& file, const Context& context,
                    const std::vector<AnyRow>& rows, const std::vector<RailStatistics>& rails) {
  nlohmann::json results = nlohmann::json::array();
  for (const AnyRow& row : rows) results.push_back(to_json(row, context));
  nlohmann::json counters = nlohmann::json::array();
  for (const RailStatistics& rail : rails) {
    counters.push_back({{"name", rail.name},
                        {"bytes_sent", rail.bytes_sent},
                        {"bytes_received", rail.bytes_received},
                        {"chunks_sent", rail.chunks_sent},
                        {"chunks_received", rail.chunks_received},
                        {"replays", rail.replays},
                        {"fences", rail.fences},
                        {"duplicates", rail.duplicates},
                        {"reconnects", rail.reconnects},
                        {"window_bytes", rail.window_bytes},
                        {"rate_bytes_per_second", rail.rate_bytes_per_second}});
  }
  const nlohmann::json document = {{"context",
                                    {{"program", "allrail-bench"},
                                     {"version", ALLRAIL_VERSION},
                                     {"date", utc_now()},
                                     {"command", context.command},
                                     {"ranks", context.ranks},
                                     {"nodes", context.nodes},
                                     {"rails", context.rails},
                                     {"leader_policy", context.leader_policy},
                                     {"segment_bytes_per_node", context.segment_bytes},
                                     {"slot_bytes_per_node", context.slot_bytes}}},
                                   {"results", results},
                                   {"rail_counters_of_rank_0", counters}};
  std::ofstream out(file);
  // A command line may hold any bytes, as the names of files may.
  out << document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  out.close();
  if (!out) base::fail(Code::ResourceLimit, "cannot write {}; check the path and the disk", file);
}

void print_memory(const Context& context) {
  fmt::print("# memory per node: a segment of {} bytes, of which calls have {} as slots\n",
             context.segment_bytes, base::format_bytes(context.slot_bytes));
}

}  // namespace

void print_header(const Context& context, const BenchOptions& options) {
  fmt::print("# allrail-bench {}: {} ranks on {} nodes, {} rails, {}, {}\n", what_text(options),
             context.ranks, context.nodes, context.rails, mode_name(context.mode),
             checked_text(options));
  print_memory(context);
  fmt::print(
      "{:>9} {:>9} {:<24} {:>2} {:>2} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>6} {:>6}\n",
      "bytes", "total", "algorithm", "k", "l", "min us", "avg us", "p50 us", "p99 us", "max us",
      "alg GB/s", "bus GB/s", "limit", "wrong");
  std::fflush(stdout);
}

void print_row(const Row& row) {
  const auto limit = row.rail_limit_percent < 0 ? std::string("-")
                                                : fmt::format("{:.0f}%", row.rail_limit_percent);
  const TimeStatistics& t = row.time_us;
  fmt::print(
      "{:>9} {:>9} {:<24} {:>2} {:>2} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>8.3f} "
      "{:>8.3f} {:>6} {:>6}\n",
      base::format_bytes(row.bytes_per_rank), base::format_bytes(row.bytes_total), row.algorithm,
      row.ports, row.leaders, t.min, t.avg, t.p50, t.p99, t.max, row.algbw_GBps, row.busbw_GBps,
      limit, wrong_text(row));
  std::fflush(stdout);
}

double overlap_percent(double call_us, double compute_us, double both_us) {
  const double shorter_us = std::min(call_us, compute_us);
  if (shorter_us <= 0) return 0;
  return std::clamp(100 * (call_us + compute_us - both_us) / shorter_us, 0.0, 100.0);
}

void print_overlap_header(const Context& context, const BenchOptions& options) {
  fmt::print(
      "# allrail-bench {} --overlap: {} ranks on {} nodes, {} rails, {} tests per call, {}\n",
      what_text(options), context.ranks, context.nodes, context.rails, options.overlap_tests,
      checked_text(options));
  print_memory(context);
  fmt::print("{:>9} {:>9} {:<24} {:>2} {:>2} {:>10} {:>10} {:>10} {:>8} {:>6}\n", "bytes", "total",
             "algorithm", "k", "l", "call us", "compute us", "both us", "overlap", "wrong");
  std::fflush(stdout);
}

void print_overlap_row(const Row& row) {
  const Overlap& overlap = *row.overlap;
  fmt::print("{:>9} {:>9} {:<24} {:>2} {:>2} {:>10.2f} {:>10.2f} {:>10.2f} {:>8} {:>6}\n",
             base::format_bytes(row.bytes_per_rank), base::format_bytes(row.bytes_total),
             row.algorithm, row.ports, row.leaders, row.time_us.p50, overlap.compute_us,
             overlap.both_us, fmt::format("{:.0f}%", overlap.percent), wrong_text(row));
  std::fflush(stdout);
}

void print_skew_header(const Context& context, const BenchOptions& options) {
  fmt::print(
      "# allrail-bench {} --skew: {} ranks on {} nodes, {} rails, up to {:g} us late, seed {}, "
      "{}\n"
      "# min to max: from the arrival of the last rank to the end of the last rank\n",
      what_text(options), context.ranks, context.nodes, context.rails,
      static_cast<double>(*options.skew_ns) * 1e-3, options.skew_seed, checked_text(options));
  print_memory(context);
  fmt::print(
      "{:>9} {:>9} {:<24} {:>2} {:>2} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>6}\n",
      "bytes", "total", "algorithm", "k", "l", "own us", "last in us", "min us", "avg us", "p50 us",
      "p99 us", "max us", "wrong");
  std::fflush(stdout);
}

void print_skew_row(const Row& row) {
  const TimeStatistics& t = row.skew->from_last_us;
  fmt::print(
      "{:>9} {:>9} {:<24} {:>2} {:>2} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} "
      "{:>10.2f} {:>6}\n",
      base::format_bytes(row.bytes_per_rank), base::format_bytes(row.bytes_total), row.algorithm,
      row.ports, row.leaders, row.time_us.p50, row.skew->last_arrival_us, t.min, t.avg, t.p50,
      t.p99, t.max, wrong_text(row));
  std::fflush(stdout);
}

void print_put_header(int peer, int rails) {
  fmt::print("# allrail-bench put: rank 0 and rank {}, {} rails\n", peer, rails);
  fmt::print("{:>9} {:<14} {:>12} {:>12} {:>14} {:>14}\n", "bytes", "rail", "latency us",
             "average us", "one way MB/s", "both ways MB/s");
  std::fflush(stdout);
}

void print_put_row(const PutRow& row) {
  fmt::print("{:>9} {:<14} {:>12.2f} {:>12.2f} {:>14.6g} {:>14.6g}\n",
             base::format_bytes(row.bytes), row.rail, row.latency_us, row.average_us,
             row.one_way_MBps, row.both_ways_MBps);
  std::fflush(stdout);
}

void write_json(const std::string& file, const Context& context, const std::vector<Row>& rows,
                const std::vector<RailStatistics>& rails) {
  write_document(file, context, rows, rails);
}

void write_json(const std::string& file, const Context& context, const std::vector<PutRow>& rows,
                const std::vector<RailStatistics>& rails) {
  write_document(file, context, rows, rails);
}

}  // namespace allrail::perf
