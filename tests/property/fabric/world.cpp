#include "tests/property/fabric/world.hpp"

#include <algorithm>

namespace allrail::transport {

std::optional<FakeNetwork::Port> port_on(const std::vector<std::vector<int>>& cables, int rank,
                                         int cable) {
  if (cables.empty()) return FakeNetwork::Port{rank, cable};
  const auto& mine = cables[static_cast<std::size_t>(rank)];
  const auto at = std::ranges::find(mine, cable);
  if (at == mine.end()) return std::nullopt;
  return FakeNetwork::Port{rank, static_cast<int>(at - mine.begin())};
}

World::World(const WorldOptions& options)
    : network_(std::make_unique<FakeNetwork>(options.seed, options.ranks, options.rails)),
      glances_(options.glances) {
  memory_.resize(static_cast<std::size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank) {
    std::vector<std::unique_ptr<Rail>> rails;
    const auto at = static_cast<std::size_t>(rank);
    const std::size_t count =
        options.cables.empty() ? options.rails.size() : options.cables[at].size();
    for (std::size_t i = 0; i < count; ++i) {
      rails.push_back(network_->make_rail(rank, static_cast<int>(i)));
      if (!options.cables.empty()) network_->plug(rank, static_cast<int>(i), options.cables[at][i]);
    }
    FabricOptions fabric = options.fabric;
    fabric.now_ns = [network = network_.get()] { return network->now_ns(); };
    fabrics_.push_back(std::make_unique<Fabric>(rank, options.ranks, std::move(rails), fabric));
    memory_[static_cast<std::size_t>(rank)].resize(options.memory_bytes);
    fabrics_.back()->set_primary_window(memory(rank));
  }
}

World::~World() = default;

void World::connect_all() {
  for (int rank = 0; rank < ranks(); ++rank)
    for (int peer = 0; peer < ranks(); ++peer) {
      if (peer == rank) continue;
      fabric(rank).connect(peer, rails_of(rank, peer));
    }
}

PeerRails World::rails_of(int rank, int peer) {
  // All in one subnet: the order is all that pairing knows.
  const auto ends_of = [&](int of) {
    std::vector<RailEnd> ends(static_cast<std::size_t>(fabric(of).rail_count()));
    for (RailEnd& end : ends) end.subnet = make_subnet({10}, 8);
    return ends;
  };
  PeerRails rails;
  rails.host = "host" + std::to_string(peer);
  for (int i = 0; i < fabric(peer).rail_count(); ++i)
    rails.rails.push_back({"fake" + std::to_string(i), FakeNetwork::address_of(peer, i)});
  rails.pairs = pair_rails({ends_of(std::min(rank, peer)), ends_of(std::max(rank, peer))});
  return rails;
}

void World::step(std::int64_t longest_ns) {
  bool any = false;
  ++steps_;
  for (int rank = 0; rank < ranks(); ++rank) any = look(rank) || any;
  if (!any) network_->advance(longest_ns);
}

bool World::look(int rank) {
  const int peer = static_cast<int>(steps_ / 4 % static_cast<std::uint64_t>(ranks()));
  if (!glances_ || steps_ % 4 == 0 || peer == rank || !fabric(rank).knows(peer)) {
    return fabric(rank).progress();
  }
  return fabric(rank).glance(peer, steps_ % 3 == 0 ? 1 : 100'000);
}

void World::pass(std::int64_t duration_ns) {
  const std::int64_t end_ns = network_->now_ns() + duration_ns;
  while (network_->now_ns() < end_ns) network_->advance(end_ns - network_->now_ns());
}

bool World::run_until(const std::function<bool()>& done, std::int64_t limit_ns) {
  const std::int64_t end_ns = network_->now_ns() + limit_ns;
  while (!done()) {
    if (network_->now_ns() > end_ns) return false;
    step();
  }
  return true;
}

}  // namespace allrail::transport
