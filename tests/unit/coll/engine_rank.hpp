// A rank of a job in one process, with an engine over a fake rail.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "coll/engine.hpp"
#include "tests/unit/coll/counting_rail.hpp"
#include "transport/fake/fake_network.hpp"

namespace allrail::coll::testing {

inline SlotGeometry geometry() {
  SlotGeometry geometry;
  geometry.small_slot_bytes = 4096;
  geometry.large_slot_bytes = 65536;
  return geometry;
}

inline shm::SegmentLayout layout_of(int ranks_of_node) {
  shm::SegmentLayout layout;
  layout.ranks = ranks_of_node;
  layout.small_slot_bytes = geometry().small_slot_bytes;
  layout.large_slot_bytes = geometry().large_slot_bytes;
  return shm::lay_out(layout);
}

/// Its engine is made by the test.
struct EngineRank final : TeamEvents {
  std::vector<shm::SegmentLayout> layouts;
  Roster roster;
  shm::NodeSegment segment;
  RailUse registrations;
  std::unique_ptr<transport::Fabric> fabric;
  Team team;
  std::unique_ptr<Engine> engine;

  /// `its_segment`: of `node_size` ranks, which all nodes have.
  EngineRank(transport::FakeNetwork& network, const schedule::NodeMap& map, int rank,
             shm::NodeSegment its_segment)
      : layouts(static_cast<std::size_t>(map.node_size(0)) + 1, layout_of(map.node_size(0))),
        roster(map, rank),
        segment(std::move(its_segment)) {
    transport::FabricOptions options;
    options.now_ns = [&network] { return network.now_ns(); };
    options.may_hold = true;
    std::vector<std::unique_ptr<transport::Rail>> rails;
    rails.push_back(std::make_unique<CountingRail>(network.make_rail(rank, 0), registrations));
    fabric = std::make_unique<transport::Fabric>(rank, map.ranks(), std::move(rails), options);
    fabric->set_primary_window(segment.bytes());
    team.rank = rank;
    team.node = map.node_of[rank];
    team.local_rank = roster.local_rank_of(rank);
    team.roster = &roster;
    team.layouts = &layouts;
    team.segment = &segment;
    team.fabric = fabric.get();
    team.events = this;
  }
  void abort_set() override {}
  transport::PeerRails rails_of(int peer) override {
    return {"", {{"fake0", transport::FakeNetwork::address_of(peer, 0)}}, {{0, 0}}};
  }
};

/// All ranks of a job whose nodes have `node_size` ranks each.
inline std::vector<std::unique_ptr<EngineRank>> make_engine_ranks(transport::FakeNetwork& network,
                                                                  int nodes, int node_size) {
  std::vector<int> node_of;
  node_of.reserve(static_cast<std::size_t>(nodes) * static_cast<std::size_t>(node_size));
  for (int rank = 0; rank < nodes * node_size; ++rank) node_of.push_back(rank / node_size);
  const schedule::NodeMap map(node_of);
  std::vector<std::unique_ptr<EngineRank>> ranks;
  for (int node = 0; node < nodes; ++node) {
    for (shm::NodeSegment& segment : shm::NodeSegment::in_memory(layout_of(node_size))) {
      const int rank = static_cast<int>(ranks.size());
      ranks.push_back(std::make_unique<EngineRank>(network, map, rank, std::move(segment)));
    }
  }
  return ranks;
}

}  // namespace allrail::coll::testing
