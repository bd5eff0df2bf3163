// allrail-bench: measures one collective, or puts between one pair of ranks.

#include <algorithm>
#include <iostream>
#include <new>
#include <vector>

#include <allrail/allrail.hpp>
#include <fmt/core.h>

#include "lib/base/error.hpp"
#include "lib/diagnostics.hpp"
#include "perf/bench_collective.hpp"
#include "perf/bench_fit.hpp"
#include "perf/bench_options.hpp"
#include "perf/bench_put.hpp"
#include "perf/bench_tune.hpp"
#include "perf/first_rank.hpp"
#include "perf/report.hpp"

namespace allrail::perf {
namespace {

void list_algorithms() {
  for (const std::string& collective : diagnostics::collectives()) {
    for (const auto& algorithm : diagnostics::algorithms_of(collective)) {
      fmt::print("{:<10} {:<24} {:<6} {}\n", collective, algorithm.name,
                 algorithm.over_nodes ? "nodes" : "ranks", algorithm.description);
    }
  }
}

/// What only a job shows to be wrong. On all ranks alike.
void check_numbers(const BenchOptions& options, const Context& context) {
  const std::vector<double>& rates = options.rail_rates_mbit;
  if (context.nodes > 1 && !rates.empty() &&
      rates.size() != static_cast<std::size_t>(context.rails)) {
    base::fail(
        Code::InvalidArgument,
        "--rail-rates has {} rates, and a node of this job has {} rails: the limit would not "
        "be that of the job; give one for each rail",
        rates.size(), context.rails);
  }
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;
  const std::uint64_t most = kMostBytes / static_cast<std::uint64_t>(context.ranks);
  for (const std::uint64_t bytes : options.sizes) {
    if (bytes <= most) continue;
    base::fail(Code::InvalidArgument,
               "--sizes: {} bytes for each of {} ranks are more than any machine addresses", bytes,
               context.ranks);
  }
}

int run(const BenchOptions& options, const std::string& command) {
  Options settings = Options::from_environment();
  if (!options.leader_policy.empty()) settings.leader_policy = options.leader_policy;
  const bool tunes = options.what == "tune";
  if (tunes) {
    // What is beaten or kept is the built-in choice.
    settings.tuning_file.clear();
    settings.algorithms.clear();
  }
  Communicator communicator = Communicator::world(settings);
  const auto job = diagnostics::describe_job(communicator);
  Context context;
  context.ranks = job.ranks;
  context.nodes = job.nodes;
  context.rails = job.nodes > 1 ? job.rails : 0;
  context.command = command;
  context.mode = options.mode;
  context.leader_policy = settings.leader_policy;
  context.segment_bytes = job.segment_bytes;
  context.slot_bytes = static_cast<std::uint64_t>(job.small_slots) * job.small_slot_bytes +
                       static_cast<std::uint64_t>(job.large_slots) * job.large_slot_bytes;
  check_numbers(options, context);
  check_output(communicator, options.json_file);
  check_output(communicator, options.tuning_file);
  if (options.what == "put") {
    const std::vector<PutRow> rows = bench_put(communicator, options);
    if (communicator.rank() == 0 && !options.json_file.empty()) {
      write_json(options.json_file, context, rows, communicator.rail_statistics());
    }
    return 0;
  }
  if (options.what == "fit") {
    bench_fit(communicator, options, command);
    return 0;
  }
  const std::vector<Row> rows =
      (tunes ? bench_tune : bench_collective)(communicator, options, context);
  if (communicator.rank() == 0 && !options.json_file.empty()) {
    write_json(options.json_file, context, rows, communicator.rail_statistics());
  }
  const auto wrong = [](const Row& row) { return row.wrong_bytes != 0; };
  return std::ranges::any_of(rows, wrong) ? 1 : 0;
}

}  // namespace
}  // namespace allrail::perf

int main(int argc, char** argv) {
  try {
    allrail::perf::BenchOptions options;
    const int code = allrail::perf::parse_command_line(argc, argv, options);
    if (code >= 0) return code;
    if (options.list) {
      allrail::perf::list_algorithms();
      return 0;
    }
    std::string command;
    for (int i = 0; i < argc; ++i) command += (i > 0 ? " " : "") + std::string(argv[i]);
    return allrail::perf::run(options, command);
  } catch (const std::bad_alloc&) {
    std::cerr << "allrail-bench: there is no memory for buffers of these --sizes\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "allrail-bench: " << error.what() << '\n';
    return 1;
  }
}
