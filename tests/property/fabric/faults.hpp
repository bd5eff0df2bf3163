// The links of a seeded run that fail: which, when and how.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/property/fabric/random.hpp"
#include "tests/property/fabric/world.hpp"

namespace allrail::transport {

struct Fault {
  std::int64_t time_ns = 0;
  FakeNetwork::Port one, other;
  enum class Kind { Cut, Heal, Freeze } kind = Kind::Cut;
  FakeCut how;
  std::int64_t duration_ns = 0;
  bool applied = false;
};

/// None in some runs. Every cut has an end, which is a fault of its own. `cables` as in
/// WorldOptions, of which there are `cable_count`.
std::vector<Fault> plan_faults(Random& random, World& world,
                               const std::vector<std::vector<int>>& cables,
                               std::uint64_t cable_count);

/// Those whose time has come.
void apply_due(std::vector<Fault>& faults, FakeNetwork& network);

/// So that no link is cut any more.
void heal_rest(const std::vector<Fault>& faults, FakeNetwork& network);

}  // namespace allrail::transport
