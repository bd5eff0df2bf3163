#pragma once

#include <cstdint>
#include <functional>

#include "coll/schedule/evaluate.hpp"
#include "coll/schedule/model.hpp"
#include "coll/schedule/program.hpp"
#include "coll/schedule/schedule.hpp"
#include "coll/schedule/shape.hpp"

// The time of a whole call by the model: makes the schedules of its ranks one after the other and
// keeps their programs only.
namespace allrail::schedule {

/// When all ranks are evaluated, counted from the schedule of one rank.
struct SimulationLimits {
  // Up to here always; above, one cell stands for all where the schedules are symmetric.
  std::uint64_t actions = 6'000'000;
  std::uint64_t steps = 60'000'000;
  // Above these it is refused where they are not: 1.2 gigabytes, a minute. Every algorithm over
  // 4,096 ranks takes less.
  std::uint64_t most_actions = 36'000'000;
  std::uint64_t most_steps = 600'000'000;
};

struct Simulation {
  double seconds = 0;
  int ranks_evaluated = 0;
  Symmetry symmetry = Symmetry::None;  // by which they stand for all others
  std::uint64_t puts = 0;              // of the ranks that were evaluated
  std::uint64_t bytes_by_rail = 0;
};

/// `root` is that of the call, or -1: with one nobody stands for all others. Else
/// symmetry is not assumed: the schedules of ranks of three other cells are made and compared with
/// those of cell 0, which is a node, or the nodes of a leaf switch. Throws std::length_error where
/// a call is too large, std::invalid_argument where schedules do not fit together.
Simulation simulate(const NodeMap& map, const std::function<Schedule(int rank)>& schedule_of,
                    const Model& model, int root, const NodePhase& phase = {},
                    const SimulationLimits& limits = {});

}  // namespace allrail::schedule
