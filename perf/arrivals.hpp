// Ranks that come to a call at different times, as those of a program with uneven computation do:
// how late each comes, and what the call then takes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <allrail/communicator.hpp>

#include "perf/statistics.hpp"

namespace allrail::perf {

/// How long `rank` computes before its timed call `iteration`: from 0 to `most_ns`, every time as
/// likely as any other. The same on every machine, and in every row of a run.
std::int64_t arrival_delay_ns(std::uint64_t seed, int rank, int iteration, std::int64_t most_ns);

/// One rank's view of calls that it came to late, by call, in microseconds by its own clock since
/// it left the barrier before the call.
struct ArrivalTimes {
  std::vector<double> arrivals_us;
  std::vector<double> ends_us;
};

/// What such calls took.
struct Skew {
  double most_us = 0;           // the largest delay that could have been drawn
  std::uint64_t seed = 0;       // of the delays
  double last_arrival_us = 0;   // of the last rank, after the barrier: the median over calls
  TimeStatistics from_last_us;  // from the arrival of the last rank to the end of the last rank
};

/// `largest[i]` becomes the largest of itself and the i-th values of all ranks; `all` has those of
/// one rank after the other.
void keep_largest(std::span<double> largest, std::span<const double> all);

/// Of every call the time from the arrival of its last rank to the end of its last rank, and when
/// that arrival was. Clocks need not agree: what is compared are times since the barrier, which all
/// ranks leave at about the same time. No time is negative, since nobody ends before it arrived.
/// Collective; the same on all ranks. `most_us` and `seed` are left to the caller.
Skew join_arrivals(Communicator& communicator, ArrivalTimes times);

}  // namespace allrail::perf
