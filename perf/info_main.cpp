// allrail-info: what Allrail sees on this host, what it is set to, and why it would choose what.

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <allrail/allrail.hpp>
#include <fmt/core.h>

#include "lib/base/error.hpp"
#include "lib/base/parse.hpp"
#include "lib/diagnostics.hpp"
#include "perf/blocks.hpp"
#include "perf/info_counters.hpp"
#include "perf/info_leaders.hpp"
#include "perf/info_simulate.hpp"
#include "perf/info_switches.hpp"
#include "perf/model_file.hpp"

namespace allrail::perf {
namespace {

constexpr const char* kAllgatherv = "allgatherv";

struct InfoOptions {
  std::string collective;
  std::string bytes;
  std::string blocks = "even";  // of an allgatherv
  int ranks = 0;
  std::string nodes;
  std::string leaves;
  int rails = 0;  // as many as the job has, two of an imagined one
  int rank = 0;
  int root = 0;
  std::string algorithm;
  int ports = 0;
  int leaders = 0;
  double startup_us = 20;
  double rate_mbit = 1000;
  std::string model_file;
  CountersQuestion counters;
  LeaderQuestion leadership;
  SimulationQuestion simulation;
};

bool has_root(const InfoOptions& info) {
  return info.collective == "gather" || info.collective == "scatter" ||
         info.collective == "broadcast";
}

void print_rails(const Options& options) {
  fmt::print("Rails of this host\n");
  bool any_verbs = false;
  for (const auto& rail : diagnostics::rails_of_this_host(options)) {
    const auto speed =
        rail.speed_mbit > 0 ? fmt::format("{} Mbit/s", rail.speed_mbit) : "rate unknown";
    any_verbs = any_verbs || rail.verbs;
    fmt::print("  {:<14} {:<5} {:<24} {:<14} {}\n", rail.name, rail.verbs ? "verbs" : "tcp",
               rail.address, speed, rail.state);
    if (rail.verbs) fmt::print("  {:<14} {}\n", "", rail.hardware);
  }
  fmt::print("{}\n", any_verbs ? "" : "  this host has no RDMA ports\n");
}

void print_job(const Communicator& communicator) {
  const auto job = diagnostics::describe_job(communicator);
  fmt::print("Job: {} ranks on {} nodes\n", job.ranks, job.nodes);
  for (int rank = 0; rank < job.ranks; ++rank) {
    std::string rails;
    for (const auto& name : job.rail_names[static_cast<std::size_t>(rank)]) rails += " " + name;
    fmt::print("  rank {:<4} node {:<4} rails{}\n", rank,
               job.node_of[static_cast<std::size_t>(rank)], rails.empty() ? " none" : rails);
  }
  fmt::print("Node memory: {} bytes: {} slots of {} for small calls, {} of {} for large ones\n",
             job.segment_bytes, job.small_slots, base::format_bytes(job.small_slot_bytes),
             job.large_slots, base::format_bytes(job.large_slot_bytes));
  fmt::print("  {} of what rank 0 has touched of it is in huge pages\n\n",
             base::format_bytes(diagnostics::segment_huge_bytes(communicator)));
}

void print_huge_pages(const Options& options) {
  const auto info = diagnostics::try_huge_pages(options);
  fmt::print("Huge pages for node memory\n");
  if (!info.refusal.empty()) {
    fmt::print("  not tried: {}\n\n", info.refusal);
  } else if (info.page_bytes == 0) {
    fmt::print("  this kernel has none\n\n");
  } else {
    fmt::print(
        "  {} each; /dev/shm is mounted with huge={}, shmem_enabled is {}; with "
        "ALLRAIL_HUGE_PAGES={} a segment {}\n",
        base::format_bytes(info.page_bytes), info.mount, info.kernel, options.huge_pages,
        info.asks);
    fmt::print("  a trial got {} of {} in huge pages\n\n",
               base::format_bytes(info.trial_huge_bytes), base::format_bytes(info.trial_bytes));
  }
}

void print_settings(const Options& options) {
  fmt::print("Settings\n");
  for (const Setting& setting : describe_settings(options)) {
    fmt::print("  {:<28} {:<12} ({}) {}; allowed: {}\n", setting.name,
               setting.value.empty() ? "''" : setting.value, setting.origin, setting.meaning,
               setting.allowed);
  }
  fmt::print("\n");
}

void print_tuning(const Options& options) {
  const auto tuning = diagnostics::describe_tuning(options);
  int rules = 0;
  std::string parts;
  for (const auto& [collective, count] : tuning.rules) {
    rules += count;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", collective, count);
  }
  fmt::print("Tuning file\n");
  if (tuning.path.empty()) {
    fmt::print("  none: the built-in table chooses\n\n");
  } else {
    fmt::print("  {}: {} rules ({}){}\n\n", tuning.path, rules, parts.empty() ? "none" : parts,
               tuning.model ? ", and a cost model where none fits" : "");
  }
}

void print_algorithms() {
  for (const std::string& collective : diagnostics::collectives()) {
    fmt::print("Algorithms of {}\n", collective);
    for (const auto& algorithm : diagnostics::algorithms_of(collective)) {
      fmt::print("  {:<24} {:<11} {}\n", algorithm.name,
                 algorithm.over_nodes ? "over nodes" : "over ranks", algorithm.description);
    }
  }
}

/// Of a file, with the rails and settings of the job as for the choice, or of the command line.
diagnostics::CostModel cost_model(const InfoOptions& info, const Options& options,
                                  const std::optional<diagnostics::CostModel>& of_tuning) {
  diagnostics::CostModel model;
  const auto rails = static_cast<std::size_t>(info.rails);
  if (!info.model_file.empty() || of_tuning) {
    model = info.model_file.empty() ? *of_tuning : read_model(info.model_file);
    const double last_rail = model.rail_MBps.back();
    model.rail_MBps.resize(rails, last_rail);
  } else {
    model.message_us = info.startup_us;
    model.rail_MBps.assign(rails, info.rate_mbit / 8 / info.rails);
  }
  model.local_puts = options.local_puts;
  return model;
}

/// What the cost model says of the whole call, whose slices it takes for one. It knows no v-forms.
void print_cost(const InfoOptions& info, std::uint64_t bytes, const std::vector<int>& node_of,
                const diagnostics::Explanation& explained, const Options& options) {
  const diagnostics::Choice& choice = explained.choice;
  const auto tuning = diagnostics::describe_tuning(options);
  const std::string from = info.model_file.empty() && tuning.model ? tuning.path : info.model_file;
  const diagnostics::CostModel model = cost_model(info, options, tuning.model);
  diagnostics::ImaginedJobCall call;
  call.collective = info.collective;
  call.algorithms = {choice.algorithm};
  call.bytes = bytes;
  call.root = has_root(info) ? info.root : 0;
  call.ports = choice.ports;
  call.leaders = choice.leaders;
  call.broadcast_segment_bytes = options.broadcast_segment_bytes;
  call.node_of = node_of;
  call.leaf_of = explained.leaf_of;
  call.chassis_of = explained.chassis_of;
  const auto result = diagnostics::simulate(call, model).front();
  if (result.refusal.empty()) {
    fmt::print("time of the call by the cost model{}: {:.1f} us ({})\n",
               from.empty() ? "" : " in " + from, result.time_us, result.evaluation);
  } else {
    fmt::print("no time of the call by the cost model: {}\n", result.refusal);
  }
}

void check_explained(const InfoOptions& info, int ranks) {
  if (info.rank < 0 || info.rank >= ranks) {
    base::fail(Code::InvalidArgument, "--rank {} is not one of {} ranks", info.rank, ranks);
  }
  if (has_root(info) && (info.root < 0 || info.root >= ranks)) {
    base::fail(Code::InvalidArgument, "--root {} is not one of {} ranks", info.root, ranks);
  }
  if (!(info.rate_mbit > 0) || !std::isfinite(info.rate_mbit) || !(info.startup_us >= 0) ||
      !std::isfinite(info.startup_us)) {
    base::fail(Code::InvalidArgument,
               "--rate {} --startup {}: rails carry more than 0 Mbit/s together, and a round does "
               "not take less than 0 us",
               info.rate_mbit, info.startup_us);
  }
  if (info.blocks != "even" && info.collective != kAllgatherv) {
    base::fail(Code::InvalidArgument,
               "--blocks {}: only an allgatherv goes by how blocks differ, other calls by the "
               "longest; say {} BYTES of that one",
               info.blocks, info.collective);
  }
}

diagnostics::ImaginedCall imagined_call(const InfoOptions& info, std::uint64_t bytes, int ranks) {
  diagnostics::ImaginedCall call;
  call.collective = info.collective;
  call.bytes = bytes;
  if (info.collective == kAllgatherv) {
    const auto count = static_cast<std::size_t>(ranks);
    const Blocks blocks =
        blocks_of_ranks(shape_named(info.blocks), bytes, count, single_owner(0, count));
    call.block_bytes.assign(blocks.counts().begin(), blocks.counts().end());
  }
  return call;
}

void print_cut(const diagnostics::Explanation& result) {
  if (result.chains.empty()) return;
  std::string ranks;
  for (const int rank : result.chains) ranks += fmt::format(" {}", rank);
  fmt::print(
      "blocks are cut at {} bytes: below goes around a ring, above in a chain from each of "
      "the ranks{}\n",
      result.level_bytes, ranks);
}

void explain(const InfoOptions& info, const Options& options, const std::vector<int>& node_of,
             const std::vector<diagnostics::LeafInfo>& leaves, const Communicator* job = nullptr) {
  const auto bytes = base::parse_bytes(info.bytes);
  if (!bytes) base::fail(Code::InvalidArgument, "'{}' is no size; use such as 64K", info.bytes);
  const auto ranks = static_cast<int>(node_of.size());
  check_explained(info, ranks);
  CallOptions call;
  call.algorithm = info.algorithm;
  call.ports = info.ports;
  call.leaders = info.leaders;
  diagnostics::ImaginedCall imagined = imagined_call(info, *bytes, ranks);
  if (has_root(info)) imagined.root = info.root;
  imagined.leaves = leaves;
  imagined.job = job;
  const auto result = diagnostics::explain(imagined, node_of, info.rank, info.rails, call, options,
                                           info.startup_us, info.rate_mbit / 8);
  fmt::print("{} of {} bytes per {}{}, {} ranks, {} rails\n", info.collective, *bytes,
             info.collective == "alltoall" ? "pair" : "rank",
             info.collective == kAllgatherv ? " in the mean, blocks " + info.blocks : "", ranks,
             info.rails);
  fmt::print("choice: {} with {} ports and {} leaders per node: {}\n", result.choice.algorithm,
             result.choice.ports, result.choice.leaders, result.choice.reason);
  fmt::print("{} rounds, {} slices, {} bytes of slot memory, {}\n", result.rounds, result.slices,
             result.slot_bytes,
             result.zero_copy     ? "straight between user buffers after ready tokens"
             : result.reads_peers ? "read out of the memory of the other ranks of the node"
                                  : "through the node segment");
  print_cut(result);
  fmt::print(
      "cost of rank {} by the Hockney model with {} us start-up and {} Mbit/s: sends {} bytes, "
      "{:.1f} us\n",
      info.rank, info.startup_us, info.rate_mbit, result.bytes_sent, result.cost_us);
  if (info.collective != kAllgatherv) print_cost(info, *bytes, node_of, result, options);
  fmt::print("schedule of rank {}{}\n", info.rank, result.slices > 1 ? " (first slice)" : "");
  for (std::size_t i = 0; i < result.steps.size(); ++i) {
    fmt::print("  {:>4}  {}\n", i, result.steps[i]);
  }
}

void add_explain(CLI::App& app, InfoOptions& info) {
  CLI::App* explain = app.add_subcommand("explain", "choice, reason, schedule and cost of a call");
  auto collectives = diagnostics::collectives();
  collectives.emplace_back(kAllgatherv);
  explain->add_option("collective", info.collective)->required()->check(CLI::IsMember(collectives));
  explain->add_option("bytes", info.bytes, "bytes per rank, such as 64K")->required();
  explain->add_option("--blocks", info.blocks, "of an allgatherv, as of allrail-bench")
      ->check(CLI::IsMember({"even", "ramp", "single"}))
      ->capture_default_str();
  explain->add_option("--ranks", info.ranks, "of an imagined job (default: this job's)")
      ->check(CLI::PositiveNumber);
  explain->add_option("--nodes", info.nodes, "its nodes, as in ALLRAIL_NODES");
  explain->add_option("--leaves", info.leaves, "the leaf switch of each of them, such as 0,0,1,1");
  explain->add_option("--rails", info.rails, "its rails (default: this job's, or 2)")
      ->check(CLI::Range(1, 8));
  explain->add_option("--root", info.root, "of a gather, scatter or broadcast");
  explain->add_option("--rank", info.rank, "whose schedule to print");
  explain->add_option("--algorithm", info.algorithm, "instead of the choice");
  explain->add_option("--ports", info.ports)->check(CLI::Range(0, 64));
  explain->add_option("--leaders", info.leaders)->check(CLI::Range(0, 64));
  explain->add_option("--startup", info.startup_us, "microseconds per round, for the cost");
  explain->add_option("--rate", info.rate_mbit, "Mbit/s of all rails together, for the cost");
  explain->add_option("--model", info.model_file,
                      "parameters of the cost model: a file of allrail-bench fit --json");
}

int run(InfoOptions info, bool explains) {
  if (info.counters.asked) return show_counters(info.counters);
  if (info.simulation.asked) return show_simulation(info.simulation);
  Options options = Options::from_environment();
  if (info.leadership.asked) return show_leaders(info.leadership, std::move(options));
  if (explains && info.ranks > 0) {
    if (info.rails == 0 && !info.model_file.empty()) {
      info.rails = static_cast<int>(read_model(info.model_file).rail_MBps.size());
    }
    if (info.rails == 0) info.rails = 2;
    explain(info, options, diagnostics::imagine_nodes(info.ranks, info.nodes),
            imagined_leaves(info.leaves));
    return 0;
  }
  const Communicator communicator = Communicator::world(options);
  if (communicator.rank() != 0) return 0;
  if (explains) {
    const auto job = diagnostics::describe_job(communicator);
    if (info.rails == 0) info.rails = std::max(1, job.rails);
    explain(info, options, job.node_of, diagnostics::describe_switches(communicator),
            &communicator);
    return 0;
  }
  fmt::print("Allrail {}\n\n", ALLRAIL_VERSION);
  print_rails(options);
  print_job(communicator);
  print_huge_pages(options);
  print_switches(communicator);
  print_settings(options);
  print_tuning(options);
  print_algorithms();
  return 0;
}

}  // namespace
}  // namespace allrail::perf

int main(int argc, char** argv) {
  CLI::App app{"Shows rails, nodes, settings and algorithms of Allrail.", "allrail-info"};
  allrail::perf::InfoOptions info;
  allrail::perf::add_explain(app, info);
  allrail::perf::add_counters(app, info.counters);
  allrail::perf::add_leaders(app, info.leadership);
  allrail::perf::add_simulate(app, info.simulation);
  CLI11_PARSE(app, argc, argv);
  try {
    return allrail::perf::run(std::move(info), app.got_subcommand("explain"));
  } catch (const std::exception& error) {
    std::cerr << "allrail-info: " << error.what() << '\n';
    return 1;
  }
}
