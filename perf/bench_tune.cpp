#include "perf/bench_tune.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "lib/base/error.hpp"
#include "lib/diagnostics.hpp"
#include "perf/bench_collective.hpp"
#include "perf/first_rank.hpp"
#include "perf/model_file.hpp"
#include "perf/tuned_rules.hpp"

namespace allrail::perf {
namespace {

// What a call and a rule may ask for; the built-in table takes more in large jobs.
constexpr int kMostPorts = 64;
constexpr double kNever = std::numeric_limits<double>::infinity();

/// One port, and as many as rails: what the built-in table and a named algorithm mostly take.
std::vector<int> ports_to_try(const BenchOptions& options, const Context& context) {
  if (options.ports > 0) return {options.ports};
  if (context.rails > 1) return {1, context.rails};
  return {1};
}

/// The file need not be where other ranks are; what is wrong with it is told to all.
std::optional<diagnostics::CostModel> model_on_rank_0(Communicator& communicator,
                                                      const std::string& file) {
  std::optional<diagnostics::CostModel> model;
  if (file.empty()) return model;
  std::string refusal;
  if (communicator.rank() == 0) {
    try {
      model = read_model(file);
    } catch (const Error& error) {
      refusal = error.what();
    }
  }
  fail_together(communicator, std::move(refusal));
  return model;
}

std::vector<Row> measure(Communicator& communicator, const BenchOptions& options,
                         const Context& context, const std::string& collective) {
  BenchOptions one = options;
  one.what = collective;
  one.algorithms.clear();
  for (const auto& algorithm : diagnostics::algorithms_of(collective)) {
    if (!algorithm.cuts_blocks) one.algorithms.push_back(algorithm.name);
  }
  std::vector<Row> rows;
  const auto add = [&] {
    const auto more = bench_collective(communicator, one, context);
    rows.insert(rows.end(), more.begin(), more.end());
  };
  for (const int ports : ports_to_try(options, context)) {
    one.ports = ports;
    add();
  }
  // The built-in choice, which may take ports that none of these has.
  one.ports = options.ports;
  one.algorithms = {"auto"};
  add();
  return rows;
}

Layout layout_of(const diagnostics::JobInfo& job) {
  Layout layout;
  layout.ranks = job.ranks;
  layout.nodes = job.nodes;
  std::vector<int> sizes(static_cast<std::size_t>(job.nodes));
  for (const int node : job.node_of) ++sizes[static_cast<std::size_t>(node)];
  layout.smallest_node = *std::ranges::min_element(sizes);
  layout.largest_node = *std::ranges::max_element(sizes);
  layout.rails = std::max(1, job.rails);
  return layout;
}

void check_rows(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (row.wrong_bytes == 0) continue;
    base::fail(Code::Internal, "{} of {} bytes by {} delivered {} wrong bytes: nothing is written",
               row.collective, row.bytes_per_rank, row.algorithm, row.wrong_bytes);
  }
}

/// The built-in choice has some number of ports at some sizes only: elsewhere it takes forever.
/// Where it changed while it was measured no one algorithm took that time.
std::vector<Candidate> candidates_of(const std::vector<Row>& rows,
                                     const std::vector<std::uint64_t>& sizes) {
  std::vector<Candidate> candidates;
  for (const Row& row : rows) {
    if (row.ports > kMostPorts || row.algorithm.find('>') != std::string::npos) continue;
    auto known = std::ranges::find_if(candidates, [&row](const Candidate& each) {
      return each.algorithm == row.algorithm && each.ports == row.ports;
    });
    if (known == candidates.end()) {
      candidates.push_back({row.algorithm, row.ports, std::vector<double>(sizes.size(), kNever)});
      known = candidates.end() - 1;
    }
    const auto size = std::ranges::find(sizes, row.bytes_per_rank) - sizes.begin();
    double& time_us = known->time_us[static_cast<std::size_t>(size)];
    // Twice measured where it is the built-in choice too: the better one is the less disturbed.
    time_us = std::min(time_us, row.time_us.p50_slowest_rank);
  }
  return candidates;
}

}  // namespace

std::vector<Row> bench_tune(Communicator& communicator, const BenchOptions& options,
                            const Context& context) {
  const auto model = model_on_rank_0(communicator, options.model_file);
  BenchOptions sorted = options;
  std::ranges::sort(sorted.sizes);
  sorted.sizes.erase(std::unique(sorted.sizes.begin(), sorted.sizes.end()), sorted.sizes.end());
  std::vector<Row> all;
  std::vector<TunedCollective> tuned;
  for (const std::string& collective : options.collectives) {
    const auto rows = measure(communicator, sorted, context, collective);
    check_rows(rows);
    all.insert(all.end(), rows.begin(), rows.end());
    TunedCollective one{collective, sorted.sizes, candidates_of(rows, sorted.sizes), {}};
    one.ranges = choose_ranges(one.candidates, options.margin_percent / 100);
    tuned.push_back(std::move(one));
  }
  if (communicator.rank() != 0) return all;
  const auto leaders = options.leaders > 0 ? std::optional<int>(options.leaders) : std::nullopt;
  const std::string& file = options.tuning_file;
  std::ofstream out(file);
  out << tuning_text(tuned, layout_of(diagnostics::describe_job(communicator)), leaders, model,
                     context.command);
  out.close();
  if (!out) base::fail(Code::ResourceLimit, "cannot write {}; check the path and the disk", file);
  Options written;
  written.tuning_file = file;
  for (const auto& [collective, rules] : diagnostics::describe_tuning(written).rules) {
    fmt::print("# {}: {} rules of {}\n", file, rules, collective);
  }
  return all;
}

}  // namespace allrail::perf
