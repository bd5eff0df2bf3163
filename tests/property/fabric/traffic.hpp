// One seeded run: random puts between all ranks under random faults, every byte checked.
#pragma once

#include <cstdint>
#include <string>

namespace allrail::transport {

struct RunResult {
  std::string error;  // empty: all invariants held
  std::uint64_t chunks = 0;
  std::uint64_t fences = 0;
  std::uint64_t replays = 0;
  std::uint64_t duplicates = 0;
  std::uint64_t held = 0;  // puts that stayed in their rails for a while
};

/// Everything about the run follows from the seed.
RunResult run_traffic(std::uint64_t seed);

}  // namespace allrail::transport
