#include "lib/diagnostics.hpp"

#include <algorithm>

#include <sched.h>

#include "coll/allgather/allgather.hpp"
#include "coll/alltoall/alltoall.hpp"
#include "coll/broadcast/broadcast.hpp"
#include "coll/gather/gather.hpp"
#include "coll/plan.hpp"
#include "coll/recipe.hpp"
#include "coll/scatter/scatter.hpp"
#include "coll/selection.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/node_spec.hpp"
#include "lib/rails.hpp"
#include "lib/select.hpp"
#include "lib/switch_report.hpp"
#include "lib/tuning_file.hpp"
#include "lib/world.hpp"
#include "shm/huge_pages.hpp"
#include "transport/pair_probe.hpp"

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
                                 Choosers choosers, std::uint64_t bytes_per_rank,
                                 const CallOptions& options) {
  auto chosen = select_for(operation, roster, rails, choosers, {bytes_per_rank}, options);
  if (roster.nodes() == 1) return chosen;
  const std::string usual = chosen.algorithm;
  for (const auto& [pace, word] :
       {std::pair(transport::Pace::Fast, "fast"), std::pair(transport::Pace::Slow, "slow")}) {
    choosers.pace = pace;
    const auto then = select_for(operation, roster, rails, choosers, {bytes_per_rank}, options);
    if (then.algorithm == usual) continue;
    chosen.reason += fmt::format("; once barriers have spread that the rails are {}: {} ({})", word,
                                 then.algorithm, then.reason);
  }
  return chosen;
}

/// Also of a v-form.
coll::Operation operation_named(const std::string& collective) {
  using coll::Operation;
  for (const Operation v_form :
       {Operation::Allgatherv, Operation::Gatherv, Operation::Scatterv, Operation::Alltoallv}) {
    if (collective == coll::operation_name(v_form)) return v_form;
  }
  return coll::operation_of(collective);
}

}  // namespace

std::vector<std::string> collectives() {
  std::vector<std::string> names;
  for (const auto operation : coll::kCollectives) {
    names.emplace_back(coll::collective_name(operation));
  }
  return names;
}

std::vector<AlgorithmInfo> algorithms_of(const std::string& collective) {
  std::vector<AlgorithmInfo> all;
  const auto add = [&all](const auto& table) {
    for (const auto& algorithm : table) {
      all.push_back({std::string(algorithm.name), std::string(algorithm.description),
                     algorithm.level != schedule::Level::Flat,
                     algorithm.name == coll::allgather::kRingChain});
    }
  };
  if (collective == "allgather") {
    add(coll::allgather::algorithms());
  } else if (collective == "gather") {
    add(coll::gather::algorithms());
  } else if (collective == "scatter") {
    add(coll::scatter::algorithms());
  } else if (collective == "broadcast") {
    add(coll::broadcast::algorithms());
  } else if (collective == "alltoall") {
    add(coll::alltoall::algorithms());
  }
  return all;
}

Choice choose(const Communicator& communicator, const std::string& collective,
              std::span<const std::size_t> block_bytes, const CallOptions& options,
              ResultMemory memory) {
  const World& world = communicator.internals();
  const auto kind = memory == ResultMemory::Buffer       ? coll::MemoryKind::Buffer
                    : memory == ResultMemory::NodeBuffer ? coll::MemoryKind::NodeBuffer
                                                         : coll::MemoryKind::Ordinary;
  const auto chosen = collective == coll::collective_name(coll::Operation::Barrier)
                          ? select_for_barrier(world.roster(), world.rail_count())
                          : world.select(operation_named(collective), block_bytes, options, kind);
  return {chosen.algorithm, chosen.ports, chosen.leaders, chosen.reason};
}

std::vector<RailInfo> rails_of_this_host(const Options& options) { return survey_rails(options); }

HugePageInfo try_huge_pages(const Options& options) {
  HugePageInfo info;
  try {
    const auto wish = shm::huge_pages_of(options.huge_pages);
    const auto trial = shm::try_huge_pages(wish);
    const auto plan = shm::plan_huge_pages(wish, trial.policy, trial.bytes);
    info.page_bytes = trial.policy.page_bytes;
    info.mount = trial.policy.mount;
    info.kernel = trial.policy.kernel;
    info.asks = !plan.advise    ? "asks for none"
                : plan.collapse ? "asks, and has small pages joined"
                                : "asks";
    info.trial_bytes = trial.bytes;
    info.trial_huge_bytes = trial.huge_bytes;
  } catch (const Error& error) {
    info.refusal = error.what();
  }
  return info;
}

JobInfo describe_job(const Communicator& communicator) {
  const World& world = communicator.internals();
  JobInfo job;
  job.ranks = world.roster().ranks();
  job.nodes = world.roster().nodes();
  job.rails = world.rail_count();
  job.node_of = world.roster().node_of_ranks();
  for (int rank = 0; rank < job.ranks; ++rank) {
    auto& names = job.rail_names.emplace_back();
    for (const auto& end : world.directory().rails_of(rank).ends) names.push_back(end.name);
  }
  const auto& layout = world.segment_layout();
  job.segment_bytes = layout.total_bytes;
  job.small_slots = layout.small_slots;
  job.small_slot_bytes = layout.small_slot_bytes;
  job.large_slots = layout.large_slots;
  job.large_slot_bytes = layout.large_slot_bytes;
  return job;
}

std::uint64_t segment_huge_bytes(const Communicator& communicator) {
  return shm::huge_bytes_of(communicator.internals().segment_memory());
}

std::vector<int> imagine_nodes(int ranks, const std::string& spec) {
  return virtual_nodes(spec, ranks);
}

namespace {

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
  const auto operation = coll::operation_of(call.collective);
  const std::uint64_t bytes_per_rank = call.bytes;
  const TuningFile tuning = read_tuning_file(settings.tuning_file);
  // As World::rail_count(): ranks that share memory need no rail.
  if (roster.nodes() == 1 && settings.local_puts != "rail") rails = 0;
  const auto model = ModelChoice::of(tuning, settings, roster, rails);
  const auto chosen = explained_choice(
      operation, roster, rails, {settings, tuning.rules, model.get()}, bytes_per_rank, options);
  const auto geometry = imagined_geometry(call, roster, settings);
  coll::PlanRequest request;
  request.operation = operation;
  request.root = call.root;
  request.algorithm = chosen.algorithm;
  request.ports = chosen.ports;
  request.leaders = chosen.leaders;
  for (int i = 0; i < map.ranks(); ++i) {
    request.bytes.push_back(bytes_per_rank);
    request.receive_offsets.push_back(static_cast<std::uint64_t>(i) * bytes_per_rank);
  }
  request.send_offsets = request.receive_offsets;
  coll::PlanLimits limits = imagined_limits(geometry, settings);
  const coll::CallPlan plan(request, roster, limits);
  Explanation explanation;
  explanation.choice = {chosen.algorithm, chosen.ports, chosen.leaders, chosen.reason};
  if (roster.switches() != nullptr) {
    explanation.leaf_of = roster.switches()->leaf_of;
    explanation.chassis_of = roster.switches()->chassis_of;
  }
  if (operation == coll::Operation::Alltoall && plan.zero_copy()) {
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
  for (const schedule::Step& step : plan.first().steps) {
    explanation.steps.push_back(describe_step(step));
    if (step.kind == schedule::StepKind::Once) {
      for (const auto& copy : plan.first().once) {
        explanation.steps.push_back("  " + describe_step(copy));
      }
    }
    explanation.reads_peers |= step.kind == schedule::StepKind::Read;
  }
  const RailUse use = rail_use(plan, map, rank);
  // Hockney: a start-up per round, and the bytes that this rank sends over all its rails together.
  explanation.bytes_sent = use.bytes;
  explanation.cost_us = static_cast<double>(use.rounds) * startup_us +
                        static_cast<double>(use.bytes) / rate_bytes_per_us;
  return explanation;
}

struct PutPair::State {
  World& world;
  int peer;
  EntryGuard guard;
  std::vector<std::byte> memory;
  std::uint64_t offset;
  std::vector<std::uint64_t> open;
  std::vector<transport::RailPair> pairs;

  /// My rail of the pair that this rail of the lower rank has, or -1 while it has none.
  int my_rail(int rail_of_lower) const {
    const transport::Fabric& fabric = *world.fabric();
    if (world.team().rank < peer) {
      return fabric.partner(peer, rail_of_lower) < 0 ? -1 : rail_of_lower;
    }
    for (int rail = 0; rail < fabric.rail_count(); ++rail) {
      if (fabric.partner(peer, rail) == rail_of_lower) return rail;
    }
    return -1;
  }

  State(World& of, int with, std::uint64_t bytes)
      : world(of),
        peer(with),
        guard(of.gate()),
        memory(bytes, std::byte{0x5A}),
        offset(of.team().slot_offset(of.team().node_of(with), of.geometry().small_slots)) {
    world.fabric()->register_source(memory);
  }
  ~State() { world.fabric()->unregister_source(memory); }

  template <class Ready>
  void wait(const Ready& ready) {
    const auto deadline = base::Deadline::after(std::chrono::seconds(60));
    while (!ready()) {
      transport::Fabric& fabric = *world.fabric();
      if (!fabric.progress() && ++idle > 100) {
        idle = 0;
        fabric.acknowledge();  // the peer may wait for that
        ::sched_yield();
        if (fabric.failure()) throw Error(Code::Network, fabric.failure()->text, peer);
        if (deadline.passed()) {
          base::fail_with_peer(Code::Timeout, peer, "no answer of rank {} within 60 s", peer);
        }
      }
    }
  }
  int idle = 0;
};

PutPair::PutPair(Communicator& communicator, int peer, std::uint64_t bytes) {
  World& world = communicator.internals();
  if (world.fabric() == nullptr || world.team().node_of(peer) == world.team().node) {
    base::fail(Code::InvalidArgument,
               "put is measured between nodes; start with at least two, such as "
               "allrail-run -n 2 --nodes 2");
  }
  const std::uint64_t room =
      world.geometry().large_slot_bytes * static_cast<std::uint64_t>(world.geometry().large_slots);
  if (bytes > room) {
    base::fail(Code::InvalidArgument,
               "a put of {} bytes does not fit into the {} bytes of slots; "
               "raise ALLRAIL_NODE_MEMORY",
               bytes, room);
  }
  state_ = std::make_unique<State>(world, peer, bytes);
  const transport::PeerRails rails = world.rails_of(peer);
  state_->pairs = transport::PairProbe(rails.pairs).assigned();
  world.fabric()->connect(peer, rails);
  state_->wait([&] { return world.fabric()->connected(peer); });
}

PutPair::~PutPair() = default;

std::vector<int> PutPair::rails() const {
  std::vector<int> rails;
  for (const transport::RailPair& pair : state_->pairs) rails.push_back(pair.lower);
  std::ranges::sort(rails);
  return rails;
}

void PutPair::put(std::uint64_t bytes, int rail) {
  transport::Fabric& fabric = *state_->world.fabric();
  if (rail >= 0) state_->wait([&] { return state_->my_rail(rail) >= 0; });
  state_->wait([&] { return fabric.can_put(state_->peer); });
  transport::Put put;
  put.peer = state_->peer;
  put.from = state_->memory.data();
  put.bytes = bytes;
  put.offset = state_->offset;
  put.only_rail = rail < 0 ? -1 : state_->my_rail(rail);
  state_->open.push_back(fabric.put(put));
}

void PutPair::await(std::uint64_t bytes) {
  transport::Fabric& fabric = *state_->world.fabric();
  const std::uint64_t number = fabric.expect(state_->peer, bytes);
  state_->wait([&] { return fabric.arrived(state_->peer, number); });
  fabric.consume(state_->peer, number);
}

void PutPair::flush() {
  transport::Fabric& fabric = *state_->world.fabric();
  for (const std::uint64_t number : state_->open) {
    state_->wait([&] { return fabric.completed(state_->peer, number); });
  }
  state_->open.clear();
  fabric.flush_acknowledgements();
}

}  // namespace allrail::diagnostics
