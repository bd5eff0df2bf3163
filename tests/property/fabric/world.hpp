// Several ranks in one process, each with its fabric over the fake rails of one network, and a
// driver that exchanges seeded puts between them and checks every byte.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "transport/fabric.hpp"
#include "transport/fake/fake_network.hpp"

namespace allrail::transport {

/// Of every rank's primary window.
inline constexpr std::size_t kWorldMemoryBytes = 512U << 10;

struct WorldOptions {
  std::uint64_t seed = 1;
  int ranks = 2;
  std::vector<FakeRailOptions> rails{FakeRailOptions{}};
  FabricOptions fabric;
  std::size_t memory_bytes = kWorldMemoryBytes;
  /// By rank: the cable of each of its rails. Empty: rail i on cable i.
  std::vector<std::vector<int>> cables;
  /// Ranks glance() at one peer, in turn, and make progress() in every fourth step only.
  bool glances = false;
};

/// The rail of a rank that is on this cable, if it has one. `cables` as in WorldOptions.
std::optional<FakeNetwork::Port> port_on(const std::vector<std::vector<int>>& cables, int rank,
                                         int cable);

/// The ranks and their network, without traffic.
class World {
 public:
  explicit World(const WorldOptions& options);
  ~World();

  int ranks() const { return static_cast<int>(fabrics_.size()); }
  Fabric& fabric(int rank) { return *fabrics_[static_cast<std::size_t>(rank)]; }
  std::span<std::byte> memory(int rank) { return memory_[static_cast<std::size_t>(rank)]; }
  FakeNetwork& network() { return *network_; }
  void connect_all();
  PeerRails rails_of(int rank, int peer);
  /// One progress() or glance() of every rank, then time goes on if nothing happened.
  void step(std::int64_t longest_ns = 1'000'000);
  /// The network moves, and no rank looks.
  void pass(std::int64_t duration_ns);
  /// Steps until `done` or the virtual time is over; true if done.
  bool run_until(const std::function<bool()>& done, std::int64_t limit_ns);

 private:
  bool look(int rank);

  std::unique_ptr<FakeNetwork> network_;
  bool glances_;
  std::uint64_t steps_ = 0;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::unique_ptr<Fabric>> fabrics_;
};

}  // namespace allrail::transport
