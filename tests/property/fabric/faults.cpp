#include "tests/property/fabric/faults.hpp"

namespace allrail::transport {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;

}  // namespace

std::vector<Fault> plan_faults(Random& random, World& world,
                               const std::vector<std::vector<int>>& cables,
                               std::uint64_t cable_count) {
  std::vector<Fault> faults;
  if (random.chance(15)) return faults;
  const auto ranks = static_cast<std::uint64_t>(world.ranks());
  const std::uint64_t count = 1 + random.below(8);
  for (std::uint64_t i = 0; i < count; ++i) {
    Fault fault;
    fault.time_ns = world.network().now_ns() +
                    static_cast<std::int64_t>(random.below(random.chance(70) ? 6 : 800) *
                                                  static_cast<std::uint64_t>(kMillisecond) +
                                              random.below(1'000'000));
    const int cable = static_cast<int>(random.below(cable_count));
    const int a = static_cast<int>(random.below(ranks));
    const int b = (a + 1 + static_cast<int>(random.below(ranks - 1))) % world.ranks();
    const auto one = port_on(cables, a, cable);
    const auto other = port_on(cables, b, cable);
    fault.how.silent = random.chance(25);
    fault.how.longest_notice_ns =
        static_cast<std::int64_t>(1 + random.below(random.chance(50) ? 1'000'000 : 1'500'000'000));
    fault.how.late_chance = random.chance(70) ? 0.6 : 0;
    fault.how.latest_ns = random.chance(50) ? 20 * kMillisecond : 2'000 * kMillisecond;
    fault.duration_ns = static_cast<std::int64_t>(random.below(1'500)) * kMillisecond;
    if (!one || !other) continue;
    fault.one = *one;
    fault.other = *other;
    if (random.chance(30)) fault.kind = Fault::Kind::Freeze;
    faults.push_back(fault);
    if (fault.kind == Fault::Kind::Freeze) continue;
    fault.kind = Fault::Kind::Heal;
    fault.time_ns += fault.duration_ns;
    faults.push_back(fault);
  }
  return faults;
}

void apply_due(std::vector<Fault>& faults, FakeNetwork& network) {
  for (Fault& fault : faults) {
    if (fault.applied || fault.time_ns > network.now_ns()) continue;
    fault.applied = true;
    if (fault.kind == Fault::Kind::Cut) network.cut(fault.one, fault.other, fault.how);
    if (fault.kind == Fault::Kind::Heal) network.heal(fault.one, fault.other);
    if (fault.kind == Fault::Kind::Freeze)
      network.freeze(fault.one, fault.other, fault.duration_ns);
  }
}

void heal_rest(const std::vector<Fault>& faults, FakeNetwork& network) {
  for (const Fault& fault : faults)
    if (!fault.applied) network.heal(fault.one, fault.other);
}

}  // namespace allrail::transport
