// Two nodes as engines of one process, over two fake rails. The other ranks start their calls, and
// the network stands still once everything that they sent has arrived. Time is the network's.
#include <algorithm>

#include "coll/engine.hpp"
#include "coll/selection.hpp"
#include "tests/counts/paths.hpp"
#include "transport/fake/fake_network.hpp"

namespace allrail::counts {
namespace {

constexpr int kNodes = 2;
constexpr int kRails = 2;

coll::SlotGeometry geometry() {
  coll::SlotGeometry geometry;
  geometry.small_slot_bytes = 16384;
  geometry.large_slot_bytes = 65536;
  return geometry;
}

shm::SegmentLayout layout_of(int ranks) {
  shm::SegmentLayout layout;
  layout.ranks = ranks;
  layout.small_slot_bytes = geometry().small_slot_bytes;
  layout.large_slot_bytes = geometry().large_slot_bytes;
  return shm::lay_out(layout);
}

struct Rank final : coll::TeamEvents {
  coll::Roster roster;
  shm::NodeSegment segment;
  std::unique_ptr<transport::Fabric> fabric;
  coll::Team team;
  std::unique_ptr<coll::Engine> engine;
  std::unique_ptr<coll::CallPlan> plan;
  std::vector<std::byte> send, receive;
  coll::CallRun run;

  void abort_set() override {}
  transport::PeerRails rails_of(int peer) override {
    transport::PeerRails rails;
    for (int rail = 0; rail < kRails; ++rail) {
      rails.rails.push_back(
          {"fake" + std::to_string(rail), transport::FakeNetwork::address_of(peer, rail)});
      rails.pairs.push_back({rail, rail});
    }
    return rails;
  }
};

class OverNodesPath final : public Path {
 public:
  OverNodesPath(int ranks_per_node, std::size_t bytes)
      : ranks_per_node_(ranks_per_node),
        bytes_(bytes),
        network_(1, kNodes * ranks_per_node, std::vector<transport::FakeRailOptions>(kRails)),
        layouts_(static_cast<std::size_t>(ranks_per_node) + 1, layout_of(ranks_per_node)) {
    std::vector<int> node_of;
    for (int node = 0; node < kNodes; ++node) {
      for (auto& view : shm::NodeSegment::in_memory(layouts_.back())) {
        node_of.push_back(node);
        ranks_.push_back(std::make_unique<Rank>());
        ranks_.back()->segment = std::move(view);
      }
    }
    const schedule::NodeMap map(node_of);
    for (int rank = 0; rank < map.ranks(); ++rank) make(map, rank);
    for (const auto& one : ranks_) one->engine->connect(*one->plan);
    settle();
  }

  std::string name() const override {
    return "engine, " + std::to_string(kNodes) + " nodes of " + std::to_string(ranks_per_node_) +
           (ranks_per_node_ == 1 ? " rank, " : " ranks, ") + std::to_string(bytes_) + " B";
  }

  void enter() override {
    ++turn_;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      Rank& one = *ranks_[rank];
      std::ranges::fill(one.send, content(static_cast<int>(rank), turn_));
      std::ranges::fill(one.receive, std::byte{0});
      if (rank > 0) one.engine->start(one.run);
    }
    settle();
  }

  void call() override {
    Rank& mine = *ranks_[0];
    mine.engine->run(*mine.plan, mine.run.buffers, deadline_);
  }

  bool leave() override {
    settle();
    for (const auto& one : ranks_) {
      if (one != ranks_[0] && one->run.state != coll::CallRun::State::Ended) return false;
      for (std::size_t i = 0; i < one->receive.size(); ++i) {
        if (one->receive[i] != content(static_cast<int>(i / bytes_), turn_)) return false;
      }
    }
    return true;
  }

 private:
  void make(const schedule::NodeMap& map, int rank) {
    Rank& one = *ranks_[static_cast<std::size_t>(rank)];
    one.roster = coll::Roster(map, rank);
    transport::FabricOptions options;
    options.now_ns = [this] { return network_.now_ns(); };
    std::vector<std::unique_ptr<transport::Rail>> rails;
    for (int rail = 0; rail < kRails; ++rail) rails.push_back(network_.make_rail(rank, rail));
    one.fabric = std::make_unique<transport::Fabric>(rank, map.ranks(), std::move(rails), options);
    one.fabric->set_primary_window(one.segment.bytes());
    one.team.rank = rank;
    one.team.node = one.roster.node();
    one.team.local_rank = one.roster.local_rank_of(rank);
    one.team.roster = &one.roster;
    one.team.layouts = &layouts_;
    one.team.segment = &one.segment;
    one.team.fabric = one.fabric.get();
    one.team.events = &one;
    one.team.wait_policy = shm::WaitPolicy::choose(false);
    one.engine = std::make_unique<coll::Engine>(one.team, geometry(), 1);
    one.plan =
        std::make_unique<coll::CallPlan>(request(map.ranks()), one.roster,
                                         coll::PlanLimits{geometry().large_slot_bytes, UINT64_MAX});
    one.send.resize(bytes_);
    one.receive.resize(bytes_ * ranks_.size());
    one.run.plan = one.plan.get();
    one.run.buffers = {one.send.data(), one.receive.data(), one.receive.size(), one.send.size()};
  }

  coll::PlanRequest request(int ranks) const {
    coll::SelectionFacts facts;
    facts.bytes_per_rank = bytes_;
    facts.ranks = ranks;
    facts.nodes = kNodes;
    facts.smallest_node = facts.largest_node = ranks_per_node_;
    facts.rails = kRails;
    const coll::Selection selection = coll::select_allgather(facts);
    coll::PlanRequest request;
    request.algorithm = selection.algorithm;
    request.ports = selection.ports;
    request.leaders = selection.leaders;
    for (int rank = 0; rank < ranks; ++rank) {
      request.bytes.push_back(bytes_);
      request.receive_offsets.push_back(static_cast<std::uint64_t>(rank) * bytes_);
    }
    return request;
  }

  /// Until everything has arrived that was sent, and the calls that can end have ended.
  void settle() {
    const std::int64_t end_ns = network_.now_ns() + 10'000'000;
    while (network_.now_ns() < end_ns) {
      for (const auto& one : ranks_) one->engine->idle_progress();
      network_.advance(1'000'000);
    }
  }

  int ranks_per_node_;
  std::size_t bytes_;
  int turn_ = 0;
  transport::FakeNetwork network_;
  std::vector<shm::SegmentLayout> layouts_;  // by node size
  std::vector<std::unique_ptr<Rank>> ranks_;
  // Of all calls together: one that has to wait is a mistake of this program.
  base::Deadline deadline_ = base::Deadline::after(std::chrono::seconds(120));
};

}  // namespace

void add_over_nodes_paths(Paths& paths) {
  for (const int ranks_per_node : {1, 2}) {
    for (const std::size_t bytes : {8, 64, 1024}) {
      paths.push_back(std::make_unique<OverNodesPath>(ranks_per_node, bytes));
    }
  }
}

}  // namespace allrail::counts
