// The source of everything that a seeded run does by chance.
#pragma once

#include <cstdint>

namespace allrail::transport {

/// Splitmix64: most of a run's time would go into a better generator.
struct Random {
  std::uint64_t state;

  std::uint64_t operator()() {
    std::uint64_t value = (state += 0x9E3779B97F4A7C15);
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
    return value ^ (value >> 31);
  }
  std::uint64_t below(std::uint64_t limit) { return limit == 0 ? 0 : (*this)() % limit; }
  bool chance(unsigned percent) { return below(100) < percent; }
};

}  // namespace allrail::transport
