// Modes of alltoallvs that repeat the counts of earlier ones, or do not. repeats: random runs of
// calls, some on a part of the ranks, whose every byte is checked. repeats-put: how many chunks
// each of some calls puts.
#include <optional>
#include <random>

#include "tests/multiprocess/collectives/rooted_caller.hpp"

namespace probe {
namespace {

// The counts of a RootedCall follow from its number: these have the same, and other bytes.
constexpr std::uint64_t kSameCounts = 252;

}  // namespace

int run_repeats(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  const auto seed = static_cast<std::uint64_t>(arguments.number("seed", 1));
  // The same on all ranks of both.
  auto part = communicator.split(communicator.rank() % 2, communicator.rank());
  RootedCaller callers[] = {RootedCaller(communicator), RootedCaller(*part)};
  std::mt19937_64 random(seed);
  const auto below = [&random](std::uint64_t bound) { return random() % bound; };
  const auto count = static_cast<std::uint64_t>(arguments.number("calls", 60));
  for (std::uint64_t i = 1; i <= count; ++i) {
    RootedCall call;
    call.kind = RootedKind::Alltoallv;
    call.number = below(kSameCounts);
    const std::size_t sizes[] = {0, below(9), 230 + below(30), below(5000), below(40'000), 90'000};
    call.bytes = sizes[below(std::size(sizes))];
    if (below(4) == 0) {
      const auto& names = algorithms_of(call.kind);
      call.options.algorithm = names[below(names.size())];
      call.options.ports = static_cast<int>(below(4));
      call.options.leaders = static_cast<int>(below(3));
    }
    RootedCaller& caller = callers[below(3) == 0 ? 1 : 0];
    const std::uint64_t repeats = 1 + below(7);
    for (std::uint64_t repeat = 0; repeat < repeats; ++repeat) {
      call.in_place = below(2) == 0;
      call.displaced = below(2) == 0;
      call.by_plan = below(6) == 0;
      call.number += kSameCounts;
      caller.make(call);
    }
    if (below(10) == 0) communicator.barrier();
  }
  communicator.barrier();
  if (communicator.rank() == 0) say("repeats done, seed " + std::to_string(seed));
  return 0;
}

int run_repeats_put(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  RootedCaller caller(communicator);
  std::string put;
  RootedCall call;
  call.kind = RootedKind::Alltoallv;
  call.options.algorithm = arguments.text("algorithm", "smp-direct");
  // Of the longest block.
  for (const std::int64_t bytes : arguments.numbers("sizes", "0,0,0")) {
    call.bytes = static_cast<std::size_t>(bytes);
    call.number += kSameCounts;
    const std::uint64_t before = chunks_sent(communicator);
    caller.make(call);
    put += " " + std::to_string(chunks_sent(communicator) - before);
  }
  say("rank " + std::to_string(communicator.rank()) + " put" + put);
  communicator.barrier();
  return 0;
}

}  // namespace probe
