#include "perf/arrivals.hpp"

#include <algorithm>
#include <cmath>

namespace allrail::perf {
namespace {

// Values that ranks tell each other at once, so that many calls of many ranks need little memory.
constexpr std::size_t kValuesAtOnce = 512;

/// splitmix64: neighbours in rank or call have nothing in common.
std::uint64_t mix(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

void take_largest_of_ranks(Communicator& communicator, std::vector<double>& values) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<double> all;
  for (std::size_t at = 0; at < values.size(); at += kValuesAtOnce) {
    const auto mine = std::span(values).subspan(at, std::min(kValuesAtOnce, values.size() - at));
    all.resize(mine.size() * ranks);
    communicator.allgather(mine, all);
    keep_largest(mine, all);
  }
}

}  // namespace

std::int64_t arrival_delay_ns(std::uint64_t seed, int rank, int iteration, std::int64_t most_ns) {
  const auto call = static_cast<std::uint64_t>(iteration);
  const std::uint64_t drawn = mix(mix(mix(seed) + static_cast<std::uint64_t>(rank)) + call);
  // The upper 53 bits are all that a double has room for.
  const double share = static_cast<double>(drawn >> 11) * 0x1p-53;
  return std::llround(share * static_cast<double>(most_ns));
}

void keep_largest(std::span<double> largest, std::span<const double> all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    double& one = largest[i % largest.size()];
    one = std::max(one, all[i]);
  }
}

Skew join_arrivals(Communicator& communicator, ArrivalTimes times) {
  take_largest_of_ranks(communicator, times.arrivals_us);
  take_largest_of_ranks(communicator, times.ends_us);
  for (std::size_t call = 0; call < times.ends_us.size(); ++call) {
    times.ends_us[call] -= times.arrivals_us[call];
  }
  Skew skew;
  skew.last_arrival_us = join_statistics(communicator, times.arrivals_us).p50;
  skew.from_last_us = join_statistics(communicator, times.ends_us);
  return skew;
}

}  // namespace allrail::perf
