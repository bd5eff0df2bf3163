#include "lib/select.hpp"

#include <algorithm>
#include <cctype>
#include <string>

#include <fmt/core.h>

#include "coll/allgather/allgather.hpp"
#include "coll/barrier/barrier.hpp"
#include "coll/recipe.hpp"

namespace allrail {

namespace {

coll::SelectionFacts facts_of(const coll::Roster& roster, int rails, const BlockSizes& blocks,
                              transport::Pace pace = transport::Pace::Unknown) {
  coll::SelectionFacts facts;
  facts.pace = pace;
  facts.bytes_per_rank = blocks.largest_bytes;
  facts.blocks_differ = blocks.pays_to_cut;
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

std::string setting_of(const std::string& collective) {
  std::string name = "ALLRAIL_ALGORITHM_";
  for (const char letter : collective) {
    name += static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  return name;
}

/// The first who has something to say; `by_table` else, whose leaders also stand where whoever
/// speaks says nothing of them.
coll::Selection first_of(const Choosers& choosers, coll::Operation operation,
                         const coll::SelectionFacts& facts, const CallOptions& call,
                         const coll::Selection& by_table) {
  if (!call.algorithm.empty()) {
    return {call.algorithm, facts.rails, by_table.leaders, "named by the call"};
  }
  const std::string collective = coll::collective_name(operation);
  const auto setting = choosers.settings.algorithms.find(collective);
  if (setting != choosers.settings.algorithms.end() && !setting->second.empty()) {
    return {setting->second, facts.rails, by_table.leaders, "named by " + setting_of(collective)};
  }
  if (const coll::TuningRule* rule = choosers.rules.find(operation, facts)) {
    return coll::select_by_rule(*rule, facts, by_table.leaders);
  }
  if (choosers.model != nullptr) {
    // The model is asked for what will be done: with the numbers that somebody else decides on.
    coll::Selection numbers{"", 0, by_table.leaders, ""};
    apply_numbers(choosers.settings, call, facts, numbers);
    if (const auto chosen = choosers.model->choose(operation, facts.bytes_per_rank, numbers.ports,
                                                   numbers.leaders)) {
      return *chosen;
    }
  }
  return by_table;
}

coll::Selection select_rooted(coll::Operation operation, const coll::Roster& roster, int rails,
                              const Choosers& choosers, const BlockSizes& blocks,
                              const CallOptions& call) {
  const coll::SelectionFacts facts = facts_of(roster, rails, blocks, choosers.pace);
  coll::Selection selection =
      first_of(choosers, operation, facts, call, coll::select_rooted(operation, facts));
  if (selection.algorithm.starts_with("topology") &&
      (!roster.switches() || roster.switches()->leaves() < 2)) {
    selection.reason += "; no two leaf switches are known, so it is as smp-";
    selection.reason += selection.algorithm == "topology" ? "binomial" : "direct";
  }
  apply_numbers(choosers.settings, call, facts, selection);
  if (!coll::has_lanes(operation)) selection.leaders = 1;
  return selection;
}

coll::Selection select_allgather(const coll::Roster& roster, int rails, const Choosers& choosers,
                                 const BlockSizes& blocks, const CallOptions& call,
                                 coll::MemoryKind memory) {
  coll::SelectionFacts facts = facts_of(roster, rails, blocks, choosers.pace);
  if (memory == coll::MemoryKind::Buffer) {
    facts.zero_copy_threshold_bytes = coll::kBufferThresholdBytes;
  }
  const coll::Selection by_table = coll::select_allgather(facts);
  // The model knows no result that a node shares, and blocks of one size only.
  Choosers asked = choosers;
  if (coll::is_node_shared(memory) || by_table.algorithm == coll::allgather::kRingChain) {
    asked.model = nullptr;
  }
  coll::Selection selection = first_of(asked, coll::Operation::Allgather, facts, call, by_table);
  // What a node shares is exchanged by nodes: every algorithm has a form for that.
  const auto* const named = coll::allgather::find_algorithm(selection.algorithm);
  if (coll::is_node_shared(memory) && named != nullptr && named->level != schedule::Level::Smp) {
    selection.algorithm = coll::allgather::same_over_nodes(*named)->name;
    selection.reason += fmt::format("; {} over nodes, since a node shares the result", named->name);
  }
  apply_numbers(choosers.settings, call, facts, selection);
  if (coll::is_node_shared(memory)) selection.leaders = 1;
  return selection;
}

}  // namespace

BlockSizes block_sizes_of(const coll::PlanRequest& request, const coll::Roster& roster) {
  BlockSizes blocks{request.longest_in_envelope.value_or(*std::ranges::max_element(request.bytes))};
  // What a node shares is not cut, and between two nodes every byte goes once in any case.
  if (request.operation == coll::Operation::Allgatherv && roster.nodes() > 2 &&
      static_cast<int>(request.bytes.size()) == roster.ranks() &&
      blocks.largest_bytes >= coll::kRingChainBytes && !coll::is_node_shared(request.memory)) {
    const auto cut = coll::allgather::cut_for_ring_chain(roster.map(), request.bytes);
    blocks.pays_to_cut = cut.cost <= coll::kRingChainCost;
  }
  return blocks;
}

coll::Selection select_for(coll::Operation operation, const coll::Roster& roster, int rails,
                           const Choosers& choosers, const BlockSizes& blocks,
                           const CallOptions& call, coll::MemoryKind memory) {
  return operation == coll::Operation::Allgather || operation == coll::Operation::Allgatherv
             ? select_allgather(roster, rails, choosers, blocks, call, memory)
             : select_rooted(operation, roster, rails, choosers, blocks, call);
}

coll::Selection select_for_allocation(const coll::Roster& roster, int rails) {
  return coll::select_allgather(facts_of(roster, rails, {}));
}

coll::Selection select_for_barrier(const coll::Roster& roster, int rails) {
  coll::Selection selection;
  selection.algorithm = coll::barrier::kAlgorithm;
  selection.ports = coll::barrier::ports_for(roster.nodes(), std::max(1, rails));
  selection.reason = "there is no other one";
  return selection;
}

}  // namespace allrail
