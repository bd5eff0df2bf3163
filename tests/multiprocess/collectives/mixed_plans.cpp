// A mode with plans of all collectives in flight at once on one communicator: mixed-plans.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <random>

#include "tests/multiprocess/collectives/any_call.hpp"

namespace probe {
namespace {

using Random = std::mt19937_64;

struct MixedPlan {
  MixedPlan(allrail::Communicator& communicator, const AnySpec& spec)
      : buffers(communicator, spec), plan(buffers.plan(communicator)) {}
  AnyCall buffers;
  allrail::Plan plan;
  bool running = false;
};

/// One plan of every collective at least, the same on all ranks.
std::vector<std::unique_ptr<MixedPlan>> make_mix(allrail::Communicator& communicator,
                                                 const std::vector<std::int64_t>& sizes,
                                                 std::size_t count, Random& common) {
  std::vector<std::unique_ptr<MixedPlan>> plans;
  for (std::size_t number = 0; number < count; ++number) {
    AnySpec spec;
    spec.kind = static_cast<AnyKind>(number % static_cast<std::size_t>(AnyKind::Last));
    spec.root = static_cast<int>(common() % static_cast<std::uint64_t>(communicator.size()));
    spec.bytes = static_cast<std::size_t>(sizes[common() % sizes.size()]);
    spec.displaced = common() % 2 == 0;
    spec.options.ports = static_cast<int>(common() % 3);
    plans.push_back(std::make_unique<MixedPlan>(communicator, spec));
  }
  return plans;
}

void end(MixedPlan& one, bool by_test) {
  while (by_test && !one.plan.test()) {
  }
  one.plan.wait();
  one.buffers.check();
  one.running = false;
}

}  // namespace

/// Plans are started in an order that is the same on all ranks and another one in every round, and
/// waited for in an order of each rank's own. Some stay in flight over several rounds.
int run_mixed_plans(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  const auto seed = static_cast<std::uint64_t>(arguments.number("seed", 1));
  Random common(seed);
  Random own(seed * 1000 + static_cast<std::uint64_t>(communicator.rank()));
  const auto sizes = arguments.numbers("sizes", "0,1,100,4096,16385,70000");
  auto plans = make_mix(communicator, sizes,
                        static_cast<std::size_t>(arguments.number("plans", 12)), common);
  std::vector<std::size_t> order(plans.size());
  std::iota(order.begin(), order.end(), 0);
  std::uint64_t number = 0;
  for (std::int64_t round = arguments.number("rounds", 12); round > 0; --round) {
    std::ranges::shuffle(order, common);
    for (const std::size_t index : order) {
      MixedPlan& one = *plans[index];
      ++number;
      if (one.running) continue;
      one.buffers.fill(number);
      one.plan.start();
      one.running = true;
    }
    if (common() % 3 == 0) communicator.barrier();
    std::vector<std::size_t> to_end;
    for (const std::size_t index : order) {
      if (round == 1 || common() % 4 != 0) to_end.push_back(index);
    }
    std::ranges::shuffle(to_end, own);
    for (const std::size_t index : to_end) end(*plans[index], own() % 3 == 0);
  }
  communicator.barrier();
  if (communicator.rank() == 0) say("mixed-plans done, starts " + std::to_string(number));
  return 0;
}

}  // namespace probe
