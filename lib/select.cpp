#include "lib/select.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "coll/allgather/allgather.hpp"
#include "coll/recipe.hpp"

namespace allrail {

namespace {

coll::SelectionFacts facts_of(const coll::Roster& roster, int rails, std::uint64_t bytes_per_rank) {
  coll::SelectionFacts facts;
  facts.bytes_per_rank = bytes_per_rank;
  facts.ranks = roster.ranks();
  facts.nodes = roster.nodes();
  facts.smallest_node = roster.smallest_node();
  facts.largest_node = roster.largest_node();
  facts.rails = std::max(1, rails);
  facts.natural_leaders = roster.natural_leaders();
  if (roster.switches()) facts.shared_leaves = roster.switches()->shared_leaves();
  return facts;
}

/// Ports and leaders that the settings, or the call before them, ask for.
void apply_numbers(const Options& settings, const CallOptions& call,
                   const coll::SelectionFacts& facts, coll::Selection& selection) {
  if (settings.ports > 0) selection.ports = settings.ports;
  if (call.ports > 0) selection.ports = call.ports;
  if (settings.leaders > 0) selection.leaders = settings.leaders;
  if (call.leaders > 0) selection.leaders = call.leaders;
  selection.leaders =
      std::clamp(selection.leaders, 1, std::min(facts.largest_node, schedule::kMostLanes));
}

}  // namespace

coll::Selection select_for_allocation(const coll::Roster& roster, int rails) {
  return coll::select_allgather(facts_of(roster, rails, 0));
}

coll::Selection select_rooted_for(coll::Operation operation, const coll::Roster& roster, int rails,
                                  const Options& settings, const coll::TuningRules& rules,
                                  std::uint64_t block_bytes, const CallOptions& call) {
  const coll::SelectionFacts facts = facts_of(roster, rails, block_bytes);
  coll::Selection selection = coll::select_rooted(operation, facts);
  const std::string collective = coll::collective_name(operation);
  const auto setting = settings.algorithms.find(collective);
  if (!call.algorithm.empty()) {
    selection = {call.algorithm, facts.rails, 1, "named by the call"};
  } else if (setting != settings.algorithms.end() && !setting->second.empty()) {
    selection = {setting->second, facts.rails, 1, "named by the setting for " + collective};
  } else if (const coll::TuningRule* rule = rules.find(operation, facts)) {
    selection = coll::select_by_rule(*rule, facts, 1);
  }
  if (selection.algorithm.starts_with("topology") &&
      (!roster.switches() || roster.switches()->leaves() < 2)) {
    selection.reason += "; no two leaf switches are known, so it is as smp-";
    selection.reason += selection.algorithm == "topology" ? "binomial" : "direct";
  }
  apply_numbers(settings, call, facts, selection);
  if (!coll::has_lanes(operation)) selection.leaders = 1;
  return selection;
}

coll::Selection select_for(const coll::Roster& roster, int rails, const Options& settings,
                           const coll::TuningRules& rules, std::uint64_t bytes_per_rank,
                           const CallOptions& call, coll::MemoryKind memory) {
  coll::SelectionFacts facts = facts_of(roster, rails, bytes_per_rank);
  if (memory == coll::MemoryKind::Buffer) {
    facts.zero_copy_threshold_bytes = coll::kBufferThresholdBytes;
  }
  coll::Selection selection = coll::select_allgather(facts);
  const auto setting = settings.algorithms.find("allgather");
  if (!call.algorithm.empty()) {
    selection = {call.algorithm, facts.rails, selection.leaders, "named by the call"};
  } else if (setting != settings.algorithms.end() && !setting->second.empty()) {
    selection = {setting->second, facts.rails, selection.leaders,
                 "named by ALLRAIL_ALGORITHM_ALLGATHER"};
  } else if (const auto* rule = rules.find(coll::Operation::Allgather, facts)) {
    selection = coll::select_by_rule(*rule, facts, selection.leaders);
  }
  // What a node shares is exchanged by nodes: every algorithm has a form for that.
  const auto* const named = coll::allgather::find_algorithm(selection.algorithm);
  if (coll::is_node_shared(memory) && named != nullptr && named->level != schedule::Level::Smp) {
    selection.algorithm = coll::allgather::same_over_nodes(*named)->name;
    selection.reason += fmt::format("; {} over nodes, since a node shares the result", named->name);
  }
  apply_numbers(settings, call, facts, selection);
  if (coll::is_node_shared(memory)) selection.leaders = 1;
  return selection;
}

}  // namespace allrail
