#include "perf/info_simulate.hpp"

#include <algorithm>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/parse.hpp"
#include "lib/diagnostics.hpp"
#include "perf/bench_options.hpp"
#include "perf/model_file.hpp"

namespace allrail::perf {
namespace {

using diagnostics::CostModel;
using diagnostics::SimulatedCall;

constexpr int kKeptBytes = 64 << 20;

template <class Value>
void replace(Value& value, const std::optional<Value>& by) {
  if (by) value = *by;
}

CostModel model_of(const ModelQuestion& question, int rails) {
  CostModel model = question.file.empty() ? CostModel{} : read_model(question.file);
  replace(model.latency_us, question.latency_us);
  replace(model.message_us, question.message_us);
  replace(model.post_us, question.post_us);
  replace(model.arrival_us, question.arrival_us);
  replace(model.copy_MBps, question.copy_MBps);
  replace(model.memory_MBps, question.memory_MBps);
  replace(model.flag_us, question.flag_us);
  replace(model.hop_us, question.hop_us);
  replace(model.oversubscription, question.oversubscription);
  // Of an uplink's two measures the file may have the one and the command line the other.
  if (question.oversubscription) model.uplink_MBps = 0;
  replace(model.uplink_MBps, question.uplink_MBps);
  replace(model.background, question.background);
  replace(model.far_share, question.far_share);
  replace(model.domains, question.domains);
  replace(model.rail_domain, question.rail_domain);
  if (!question.rail_MBps.empty()) model.rail_MBps = question.rail_MBps;
  if (!question.leaf_size.empty()) model.leaf_size = question.leaf_size;
  if (!question.local_puts.empty()) model.local_puts = question.local_puts;
  if (!question.stripe_bytes.empty()) {
    const auto bytes = base::parse_bytes(question.stripe_bytes);
    if (!bytes) {
      base::fail(Code::InvalidArgument, "--stripe-bytes '{}' is no size; use such as 16K",
                 question.stripe_bytes);
    }
    model.stripe_bytes = *bytes;
  }
  model.own_ports = model.own_ports || question.own_ports;
  // More rails than rates: the last rate again.
  if (rails > 0 && !model.rail_MBps.empty()) {
    model.rail_MBps.resize(static_cast<std::size_t>(rails), model.rail_MBps.back());
  }
  return model;
}

/// The node of every rank, from such as 4x16+29x8.
std::vector<int> nodes_of(const std::string& sizes) {
  constexpr std::uint64_t kMostRanks = 65536;
  std::vector<int> node_of;
  int node = 0;
  for (const std::string& part : base::split(sizes, '+')) {
    const auto cross = part.find('x');
    const bool many = cross != std::string::npos;
    const auto count = many ? base::parse_number(part.substr(0, cross)) : 1;
    const auto size = base::parse_number(many ? part.substr(cross + 1) : part);
    if (!count || !size || *count == 0 || *size == 0 || *count > kMostRanks / *size) {
      base::fail(Code::InvalidArgument,
                 "--node-sizes '{}' is none; use ranks of every node such as 16+16+8 or 2x16+8",
                 sizes);
    }
    for (std::uint64_t i = 0; i < *count; ++i, ++node) {
      node_of.insert(node_of.end(), *size, node);
    }
  }
  return node_of;
}

diagnostics::ImaginedJobCall call_of(const SimulationQuestion& question) {
  diagnostics::ImaginedJobCall call;
  call.collective = question.collective;
  const std::string& name = question.collective;
  if (name == "gather" || name == "scatter" || name == "broadcast") call.root = question.root;
  call.ports = question.ports;
  call.leaders = question.leaders;
  if (!question.broadcast_segment.empty()) {
    call.broadcast_segment_bytes = parse_sizes(question.broadcast_segment, 1).front();
  }
  call.nodes = question.nodes;
  call.ranks_per_node = question.ranks_per_node;
  call.node_of = nodes_of(question.node_sizes);
  if (question.algorithm.empty()) {
    base::fail(Code::InvalidArgument, "--algorithm '' names none; take all, or names with commas");
  }
  const bool all = question.algorithm == "all";
  if (!all) call.algorithms = base::split(question.algorithm, ',');
  for (const auto& algorithm : diagnostics::algorithms_of(question.collective)) {
    if (all && !algorithm.cuts_blocks) call.algorithms.push_back(algorithm.name);
  }
  return call;
}

std::string job_of(const SimulationQuestion& question, const CostModel& model) {
  const std::string nodes =
      question.node_sizes.empty()
          ? fmt::format("{} nodes x {} ranks", question.nodes, question.ranks_per_node)
          : fmt::format("nodes of {} ranks", question.node_sizes);
  return fmt::format(
      "{}, {} rails, {} ports, {} leaders per node{}", nodes, model.rail_MBps.size(),
      question.ports, question.leaders,
      model.leaf_size.empty()
          ? ""
          : fmt::format(", leaf switches of {} nodes, {}, {:.0f} % of it in use",
                        fmt::join(model.leaf_size, ","),
                        model.uplink_MBps > 0
                            ? fmt::format("{} MB/s up", model.uplink_MBps)
                            : fmt::format("{}:1 oversubscribed", model.oversubscription),
                        100 * model.background));
}

std::string parameters_of(const CostModel& model) {
  return fmt::format(
      "latency {} us, message {} us, post {} us, arrival {} us, rails {} MB/s, striped above {}, "
      "copy {} MB/s, flag {} us, hop {} us",
      model.latency_us, model.message_us, model.post_us, model.arrival_us,
      fmt::join(model.rail_MBps, ","), base::format_bytes(model.stripe_bytes), model.copy_MBps,
      model.flag_us, model.hop_us);
}

void print_rows(std::uint64_t bytes, const std::vector<SimulatedCall>& calls) {
  const SimulatedCall* best = nullptr;
  for (const SimulatedCall& call : calls) {
    if (call.refusal.empty() && (best == nullptr || call.time_us < best->time_us)) best = &call;
  }
  for (const SimulatedCall& call : calls) {
    if (call.refusal.empty()) {
      fmt::print("{:>9} {:<50} {:>14.2f} {:<7} {}\n", base::format_bytes(bytes), call.algorithm,
                 call.time_us, &call == best ? "fastest" : "", call.evaluation);
    } else {
      fmt::print("{:>9} {:<50} {:>14} {:<7} not evaluated: {}\n", base::format_bytes(bytes),
                 call.algorithm, "-", "", call.refusal);
    }
  }
}

nlohmann::json to_json(std::uint64_t bytes, const SimulatedCall& call) {
  nlohmann::json row = {{"bytes", bytes}, {"algorithm", call.algorithm}};
  if (call.refusal.empty()) {
    row["time_us"] = call.time_us;
    row["evaluated"] = call.evaluation;
  } else {
    row["not_evaluated"] = call.refusal;
  }
  return row;
}

void add_model(CLI::App& app, ModelQuestion& question) {
  app.add_option("--model", question.file, "parameters: a file of allrail-bench fit --json");
  app.add_option("--latency-us", question.latency_us, "from rail to rail, without switches");
  app.add_option("--message-us", question.message_us, "of a rail, for every message");
  app.add_option("--post-us", question.post_us, "of the core, for every put");
  app.add_option("--arrival-us", question.arrival_us, "of the core, for every put that arrives");
  app.add_option("--rail-MBps", question.rail_MBps, "of every rail; the last one repeats")
      ->delimiter(',');
  app.add_option("--stripe-bytes", question.stripe_bytes, "longer puts travel on all rails");
  app.add_option("--copy-MBps", question.copy_MBps, "of a core that copies in its node");
  app.add_option("--memory-MBps", question.memory_MBps,
                 "of a domain's memory, for all who copy there (default: no limit)");
  app.add_option("--flag-us", question.flag_us, "until a core has read another one's flag");
  app.add_option("--local-puts", question.local_puts, "of algorithms over ranks, within a node")
      ->check(CLI::IsMember({"copy", "rail"}));
  app.add_option("--hop-us", question.hop_us, "of a switch");
  app.add_option("--leaf-size", question.leaf_size,
                 "nodes of every leaf switch, such as 32 or 4,29; the last one repeats")
      ->delimiter(',');
  app.add_option("--oversubscription", question.oversubscription,
                 "rates of the nodes of a leaf switch together, by that of its uplink");
  app.add_option("--uplink-MBps", question.uplink_MBps, "of a leaf switch, instead of that");
  app.add_option("--background", question.background,
                 "share of the uplinks that others use, from 0 to below 1");
  app.add_option("--domains", question.domains,
                 "memories of a node, with even shares of its ranks");
  app.add_option("--rail-domain", question.rail_domain, "the one that the rails are near to");
  app.add_option("--far-share", question.far_share, "of its rate that a rail has into the others");
  app.add_flag("--own-ports", question.own_ports,
               "every rank has the rails for itself, as in the k-port model of the papers");
}

}  // namespace

void add_simulate(CLI::App& app, SimulationQuestion& question) {
  CLI::App* simulate = app.add_subcommand(
      "simulate", "the time of a collective by the cost model, from its real schedules");
  simulate->add_option("collective", question.collective)
      ->required()
      ->check(CLI::IsMember(diagnostics::collectives()));
  simulate
      ->add_option("bytes", question.bytes,
                   "bytes per rank (alltoall: per pair): 64K, a list 8,64K, or a range 8:1M")
      ->required();
  simulate->add_option("--nodes", question.nodes)->check(CLI::PositiveNumber);
  simulate->add_option("--ranks-per-node", question.ranks_per_node)->check(CLI::PositiveNumber);
  simulate->add_option("--node-sizes", question.node_sizes,
                       "instead: ranks of every node, such as 4x16+29x8");
  simulate->add_option("--rails", question.rails, "of a node (default: as many as the model has)")
      ->check(CLI::Range(1, 64));
  simulate->add_option("--root", question.root, "of a gather, scatter or broadcast");
  simulate->add_option("--algorithm", question.algorithm, "names with commas, or all");
  simulate->add_option("--ports", question.ports, "peers that a step sends to at once")
      ->check(CLI::Range(1, 64));
  simulate->add_option("--leaders", question.leaders, "per node, of an allgather or alltoall")
      ->check(CLI::Range(1, 64));
  simulate->add_option("--broadcast-segment", question.broadcast_segment,
                       "bytes of the pieces of a chain, as ALLRAIL_BROADCAST_SEGMENT");
  simulate->add_flag("--json", question.json, "print JSON");
  add_model(*simulate, question.model);
  simulate->callback([&question] { question.asked = true; });
}

int show_simulation(const SimulationQuestion& question) {
  const CostModel model = model_of(question.model, question.rails);
  const auto sizes = parse_sizes(question.bytes, 4);
  auto call = call_of(question);
  // A schedule of a large job is made and dropped once per rank: its pages stay with the process.
  ::mallopt(M_MMAP_THRESHOLD, kKeptBytes);
  ::mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  nlohmann::json rows = nlohmann::json::array();
  if (!question.json) {
    fmt::print("{}, by the model, without running it: {}\n{}\n{:>9} {:<50} {:>14}\n",
               question.collective, job_of(question, model), parameters_of(model), "bytes",
               "algorithm", "time us");
  }
  for (const std::uint64_t bytes : sizes) {
    call.bytes = bytes;
    const auto results = diagnostics::simulate(call, model);
    if (!question.json) print_rows(bytes, results);
    for (const SimulatedCall& result : results) rows.push_back(to_json(bytes, result));
  }
  if (question.json) {
    const nlohmann::json document = {{"collective", question.collective},
                                     {"job", job_of(question, model)},
                                     {"model", parameters_of(model)},
                                     {"results", rows}};
    fmt::print("{}\n", document.dump(2));
  }
  return 0;
}

}  // namespace allrail::perf
