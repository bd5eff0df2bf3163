#pragma once

#include <cstdint>
#include <functional>

#include "coll/schedule/exchange.hpp"
#include "coll/schedule/schedule.hpp"

// What schedules cost in Hockney's model with k ports (Qian and Afsahi 2008, section 3.2): a step
// takes ts plus the bytes of the busiest port times tau; copies, reads in the node
// and local waits are free.
namespace allrail::schedule {

struct Hockney {
  double startup_s = 0;         // ts
  double seconds_per_byte = 0;  // tau, of one port
};

struct Cost {
  int steps = 0;                     // rounds in which somebody puts
  std::uint64_t bytes_per_port = 0;  // over the rounds, the sum of what the busiest port carries
  double seconds = 0;
};

/// Of one call of `ranks` ranks; `schedule_of(rank)` is called once for every rank. Headers count.
Cost cost_of(int ranks, const std::function<Schedule(int)>& schedule_of, const Hockney& model);

struct ExchangeCost {
  int steps = 0;
  std::int64_t blocks_per_port = 0;
};

/// The same in blocks of equal size and without headers, as the papers count.
ExchangeCost cost_of_exchange(ExchangeFunction exchange, int participants, int ports);

}  // namespace allrail::schedule
