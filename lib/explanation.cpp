// What a call would do and why: choice, schedule of one rank, cost.
#include <algorithm>
#include <numeric>

#include <fmt/core.h>

#include "coll/allgather/allgather.hpp"
#include "coll/plan.hpp"
#include "coll/recipe.hpp"
#include "coll/selection.hpp"
#include "lib/diagnostics.hpp"
#include "lib/select.hpp"
#include "lib/switch_report.hpp"
#include "lib/tuning_file.hpp"
#include "lib/world.hpp"

namespace allrail::diagnostics {
namespace {

/// With node memory as set. The directory of a job that does not run is not known.
coll::SlotGeometry imagined_geometry(const ImaginedCall& call, const coll::Roster& roster,
                                     const Options& settings) {
  const std::uint64_t directory_bytes =
      call.job == nullptr ? 0 : call.job->internals().segment_layout().directory_bytes;
  return coll::divide_node_memory(settings.node_memory_bytes,
                                  coll::bytes_beside_slots(roster.largest_node(), directory_bytes));
}

const char* memory_name(schedule::Memory memory) {
  switch (memory) {
    case schedule::Memory::Send:
      return "send";
    case schedule::Memory::Receive:
      return "receive";
    case schedule::Memory::Slot:
      return "slot";
    case schedule::Memory::Lines:
      return "flags";
  }
  return "?";
}

std::string describe_step(const schedule::Step& step) {
  using schedule::StepKind;
  const char* from = memory_name(step.from);
  const char* to = memory_name(step.to);
  switch (step.kind) {
    case StepKind::Copy:
    case StepKind::Pack:
    case StepKind::Unpack:
      return fmt::format("copy {} bytes from {}+{} to {}+{}", step.bytes, from, step.from_offset,
                         to, step.to_offset);
    case StepKind::Stamp:
      return fmt::format("write the header at slot+{}", step.to_offset);
    case StepKind::Put:
      return fmt::format("put {} bytes from {}+{} to {}+{} of rank {} (round {}, port {})",
                         step.bytes, from, step.from_offset, to, step.to_offset, step.peer,
                         step.round, step.port);
    case StepKind::Await:
      return fmt::format("await {} bytes of rank {} at {}+{} (round {})", step.bytes, step.peer, to,
                         step.to_offset, step.round);
    case StepKind::Publish:
      return fmt::format("raise my flag to stage {}", step.stage);
    case StepKind::AwaitLocal:
      return fmt::format("await stage {} of local rank {}", step.stage, step.peer);
    case StepKind::AwaitSent:
      return "await that my puts need not be sent again";
    case StepKind::Offer:
      return fmt::format("offer {} bytes at {}+{} to my node, raise my flag to stage {}",
                         step.bytes, from, step.from_offset, step.stage);
    case StepKind::Read:
      return fmt::format("read {} bytes that local rank {} offers to {}+{}", step.bytes, step.peer,
                         to, step.to_offset);
    case StepKind::Once:
      return "the first rank of my node to come here makes the copies below, the others await that";
  }
  return "?";
}

/// As a job begins, with what it may learn of its rails in the reason.
coll::Selection explained_choice(coll::Operation operation, const coll::Roster& roster, int rails,
                                 Choosers choosers, const BlockSizes& blocks,
                                 const CallOptions& options) {
  auto chosen = select_for(operation, roster, rails, choosers, blocks, options);
  if (roster.nodes() == 1) return chosen;
  const std::string usual = chosen.algorithm;
  for (const auto& [pace, word] :
       {std::pair(transport::Pace::Fast, "fast"), std::pair(transport::Pace::Slow, "slow")}) {
    choosers.pace = pace;
    const auto then = select_for(operation, roster, rails, choosers, blocks, options);
    if (then.algorithm == usual) continue;
    chosen.reason += fmt::format("; once barriers have spread that the rails are {}: {} ({})", word,
                                 then.algorithm, then.reason);
  }
  return chosen;
}

/// What a rank sends over its rails in all slices, and in how many rounds.
struct RailUse {
  std::uint64_t bytes = 0;
  std::uint64_t rounds = 0;
};

RailUse rail_use(const schedule::Schedule& schedule, const schedule::NodeMap& map, int rank) {
  RailUse use;
  int round = -1;
  for (const schedule::Step& step : schedule.steps) {
    if (step.kind != schedule::StepKind::Put || map.node_of[static_cast<std::size_t>(step.peer)] ==
                                                    map.node_of[static_cast<std::size_t>(rank)]) {
      continue;
    }
    use.rounds += step.round != round ? 1 : 0;
    round = step.round;
    use.bytes += step.bytes;
  }
  return use;
}

RailUse rail_use(const coll::CallPlan& plan, const schedule::NodeMap& map, int rank) {
  const RailUse first = rail_use(plan.first(), map, rank);
  RailUse all = first;
  for (std::uint64_t slice = 1; slice < plan.slices(); ++slice) {
    const auto schedule = plan.schedule(slice);
    const RailUse one = schedule.get() == &plan.first() ? first : rail_use(*schedule, map, rank);
    all.bytes += one.bytes;
    all.rounds += one.rounds;
  }
  return all;
}

/// As if the system allowed single copies, and there were a core for every rank.
coll::PlanLimits imagined_limits(const coll::SlotGeometry& geometry, const Options& settings) {
  coll::PlanLimits limits{geometry.large_slot_bytes, coll::kZeroCopyThresholdBytes};
  limits.small_slot_bytes = geometry.most_in_small_ring();
  limits.segment_bytes = settings.broadcast_segment_bytes;
  limits.alltoall_threshold_bytes = coll::kAlltoallThresholdBytes;
  limits.rooted_threshold_bytes = coll::kRootedThresholdBytes;
  if (settings.single_copy != "off") {
    limits.single_copy_threshold_bytes = coll::kSingleCopyThresholdBytes;
  }
  return limits;
}

/// All but the choice.
coll::PlanRequest request_of(const ImaginedCall& call, int ranks) {
  coll::PlanRequest request;
  request.operation =
      call.block_bytes.empty() ? coll::operation_of(call.collective) : coll::Operation::Allgatherv;
  request.root = call.root;
  request.bytes.assign(static_cast<std::size_t>(ranks), call.bytes);
  if (!call.block_bytes.empty()) {
    request.bytes.assign(call.block_bytes.begin(), call.block_bytes.end());
  }
  request.receive_offsets.resize(request.bytes.size());
  std::exclusive_scan(request.bytes.begin(), request.bytes.end(), request.receive_offsets.begin(),
                      std::uint64_t{0});
  request.send_offsets = request.receive_offsets;
  return request;
}

void describe_cut(const coll::PlanRequest& request, const schedule::NodeMap& map,
                  Explanation& explanation) {
  if (request.operation != coll::Operation::Allgatherv ||
      request.algorithm != coll::allgather::kRingChain) {
    return;
  }
  explanation.level_bytes = coll::allgather::cut_for_ring_chain(map, request.bytes).level_bytes;
  for (int rank = 0; rank < map.ranks(); ++rank) {
    const std::uint64_t block = request.bytes[static_cast<std::size_t>(rank)];
    if (block > explanation.level_bytes) explanation.chains.push_back(rank);
  }
}

void describe_steps(const schedule::Schedule& schedule, Explanation& explanation) {
  for (const schedule::Step& step : schedule.steps) {
    explanation.steps.push_back(describe_step(step));
    if (step.kind == schedule::StepKind::Once) {
      for (const auto& copy : schedule.once) {
        explanation.steps.push_back("  " + describe_step(copy));
      }
    }
    explanation.reads_peers |= step.kind == schedule::StepKind::Read;
  }
}

}  // namespace

Explanation explain(const ImaginedCall& call, const std::vector<int>& node_of, int rank, int rails,
                    const CallOptions& options, const Options& settings, double startup_us,
                    double rate_bytes_per_us) {
  const schedule::NodeMap map(node_of);
  coll::Roster roster(map, rank);
  roster.hang_on(imagined_switches(call.leaves, map.nodes()));
  if (call.job != nullptr) {
    const World& world = call.job->internals();
    roster.elect_by(topology::parse_leader_policy(world.options().leader_policy).value(),
                    world.directory().places(map.ranks()));
  }
  coll::PlanRequest request = request_of(call, map.ranks());
  const TuningFile tuning = read_tuning_file(settings.tuning_file);
  // As World::rail_count(): ranks that share memory need no rail.
  if (roster.nodes() == 1 && settings.local_puts != "rail") rails = 0;
  const auto model = ModelChoice::of(tuning, settings, roster, rails);
  const auto chosen =
      explained_choice(request.operation, roster, rails, {settings, tuning.rules, model.get()},
                       block_sizes_of(request, roster), options);
  const auto geometry = imagined_geometry(call, roster, settings);
  request.algorithm = chosen.algorithm;
  request.ports = chosen.ports;
  request.leaders = chosen.leaders;
  coll::PlanLimits limits = imagined_limits(geometry, settings);
  const coll::CallPlan plan(request, roster, limits);
  Explanation explanation;
  explanation.choice = {chosen.algorithm, chosen.ports, chosen.leaders, chosen.reason};
  if (roster.switches() != nullptr) {
    explanation.leaf_of = roster.switches()->leaf_of;
    explanation.chassis_of = roster.switches()->chassis_of;
  }
  if (request.operation == coll::Operation::Alltoall && plan.zero_copy()) {
    limits.alltoall_threshold_bytes = coll::alltoall_threshold_bytes(transport::Pace::Slow);
    if (!coll::CallPlan(request, roster, limits).zero_copy()) {
      explanation.choice.reason +=
          "; once barriers have spread that the rails are slow: through slots";
    }
  }
  explanation.rounds = plan.first().rounds;
  explanation.slot_bytes = plan.slot_bytes();
  explanation.slices = plan.slices();
  explanation.zero_copy = plan.zero_copy();
  describe_steps(plan.first(), explanation);
  describe_cut(request, map, explanation);
  const RailUse use = rail_use(plan, map, rank);
  // Hockney: a start-up per round, and the bytes that this rank sends over all its rails together.
  explanation.bytes_sent = use.bytes;
  explanation.cost_us = static_cast<double>(use.rounds) * startup_us +
                        static_cast<double>(use.bytes) / rate_bytes_per_us;
  return explanation;
}

}  // namespace allrail::diagnostics
