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
