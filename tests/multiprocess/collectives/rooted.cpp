// Modes that check bytes of gather, scatter, broadcast and alltoall: rooted-grid, rooted-sequence.
// rooted-registrations: what straight gathers and scatters register with the rails. rooted-leaders:
// which ranks put in alltoalls with one leader per node, with two, and with one again.
#include <numeric>
#include <optional>
#include <random>
#include <set>

#include "tests/multiprocess/collectives/rooted_caller.hpp"

namespace probe {
namespace {

/// All by turns, each turn from another one, so that nothing else that comes by turns meets few.
int grid_root(std::uint64_t point, int ranks) {
  const auto size = static_cast<std::uint64_t>(ranks);
  return static_cast<int>((point + scattered(point / size)) % size);
}

}  // namespace

int run_rooted_grid(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  RootedCaller caller(communicator);
  Sample sample(arguments);
  const bool mixed = arguments.number("mixed", 0) != 0;  // every other rank in place
  const bool blocking = arguments.number("blocking", 0) != 0;
  // Empty: all algorithms, and all collectives.
  const std::vector<std::string> only = arguments.texts("algorithms", "");
  const std::vector<std::string> collectives = arguments.texts("collectives", "");
  std::uint64_t points = 0;
  std::set<std::int64_t> sizes;  // that calls were made of
  std::set<int> roots;           // of calls without any of the forms
  for (int kind = 0; kind < static_cast<int>(RootedKind::Last); ++kind) {
    if (!collectives.empty() &&
        std::ranges::find(collectives, kRootedNames[kind]) == collectives.end()) {
      continue;
    }
    for (const std::string& algorithm : algorithms_of(static_cast<RootedKind>(kind))) {
      if (!only.empty() && std::ranges::find(only, algorithm) == only.end()) continue;
      for (const std::int64_t ports : arguments.numbers("ports", "1,3")) {
        for (const std::int64_t bytes : arguments.numbers("sizes", "0,1,8,100,4096,16385,70000")) {
          if (!sample.next()) continue;
          sizes.insert(bytes);
          RootedCall call;
          call.kind = static_cast<RootedKind>(kind);
          call.bytes = static_cast<std::size_t>(bytes);
          call.options.algorithm = algorithm;
          call.options.ports = static_cast<int>(ports);
          call.options.leaders = static_cast<int>(scattered(points) / 7 % 4);
          for (const bool variant : {false, true}) {
            call.number = 2 * points + (variant ? 2 : 1);
            call.root = grid_root(points + (variant ? 1 : 0), communicator.size());
            const std::uint64_t forms = variant ? 1 + scattered(points) % 7 : 0;
            call.in_place = (forms & 1) != 0 && (!mixed || communicator.rank() % 2 == 0);
            call.displaced = (forms & 2) != 0;
            call.by_plan = (forms & 4) != 0 && !blocking;
            if (!variant) roots.insert(call.root);
            caller.make(call);
          }
          ++points;
        }
      }
    }
  }
  communicator.barrier();
  if (communicator.rank() == 0) {
    say("rooted-grid done, calls " + std::to_string(2 * points) + " of " +
        std::to_string(sizes.size()) + " sizes by " + std::to_string(roots.size()) + " roots");
  }
  return 0;
}

int run_rooted_sequence(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  RootedCaller caller(communicator);
  Caller others(communicator);
  const auto seed = static_cast<std::uint64_t>(arguments.number("seed", 1));
  std::mt19937_64 random(seed);
  const auto below = [&random](std::uint64_t bound) { return random() % bound; };
  const auto count = static_cast<std::uint64_t>(arguments.number("calls", 100));
  for (std::uint64_t i = 1; i <= count; ++i) {
    RootedCall call;
    call.kind = static_cast<RootedKind>(below(static_cast<std::uint64_t>(RootedKind::Last)));
    call.number = i;
    call.root = static_cast<int>(below(static_cast<std::uint64_t>(communicator.size())));
    const std::size_t sizes[] = {below(9), below(600), 4090 + below(12), below(70'000),
                                 below(20) == 0 ? 1'500'000 : below(3000)};
    call.bytes = sizes[below(std::size(sizes))];
    call.in_place = below(2) == 0;
    call.displaced = below(2) == 0;
    call.by_plan = below(4) == 0;
    const auto& names = algorithms_of(call.kind);
    call.options.algorithm = names[below(names.size())];
    call.options.ports = static_cast<int>(below(4));
    call.options.leaders = static_cast<int>(below(4));
    // Many calls of one kind in a row: roots that run ahead, and leaves that lag behind.
    const std::uint64_t repeats = below(8) == 0 ? 25 : 1;
    const auto slow_rank = static_cast<int>(below(static_cast<std::uint64_t>(communicator.size())));
    const bool is_slow = below(6) == 0;
    const bool also_allgather = below(5) == 0;
    if (is_slow && slow_rank == communicator.rank()) sleep_seconds(2e-3);
    for (std::uint64_t repeat = 0; repeat < repeats; ++repeat) {
      call.number = i * 100 + repeat;
      if (repeat == 0 || call.bytes < 100'000) caller.make(call);
    }
    if (also_allgather) {
      Exchange exchange = same_from_all(communicator.size(), call.bytes);
      exchange.number = i;
      others.make(exchange);
    }
  }
  communicator.barrier();
  if (communicator.rank() == 0) say("rooted-sequence done, seed " + std::to_string(seed));
  return 0;
}

int run_rooted_registrations(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  RootedCaller caller(communicator);
  const auto root = static_cast<int>(arguments.number("root", 0));
  const auto rails = communicator.rail_statistics().size();
  std::string made;
  RootedCall call;
  call.root = root;
  call.bytes = 1 << 20;
  call.options.algorithm = "direct";
  for (const RootedKind kind : {RootedKind::Gather, RootedKind::Scatter}) {
    for (const bool by_plan : {false, true}) {
      call.kind = kind;
      call.by_plan = by_plan;
      ++call.number;
      const std::uint64_t before = registrations(communicator);
      caller.make(call);
      made += " " + std::to_string((registrations(communicator) - before) / rails);
    }
  }
  say("rank " + std::to_string(communicator.rank()) + " registered" + made);
  communicator.barrier();
  return 0;
}

int run_rooted_leaders(const Arguments& /*arguments*/) {
  auto communicator = allrail::Communicator::world();
  RootedCaller caller(communicator);
  std::string sent;
  RootedCall call;
  call.kind = RootedKind::Alltoall;
  call.bytes = 100;
  call.options.algorithm = "smp-direct";
  for (const int leaders : {1, 2, 1}) {
    call.options.leaders = leaders;
    ++call.number;
    const std::uint64_t before = chunks_sent(communicator);
    caller.make(call);
    sent += chunks_sent(communicator) == before ? " nothing" : " something";
  }
  say("rank " + std::to_string(communicator.rank()) + " put" + sent);
  communicator.barrier();
  return 0;
}

}  // namespace probe
