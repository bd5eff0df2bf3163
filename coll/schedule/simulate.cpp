#include "coll/schedule/simulate.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string>

namespace allrail::schedule {
namespace {

class Simulator {
 public:
  Simulator(const NodeMap& map, const std::function<Schedule(int)>& schedule_of, const Model& model,
            int root, const NodePhase& phase, const SimulationLimits& limits)
      : map_(map),
        schedule_of_(schedule_of),
        model_(model),
        root_(root),
        phase_(phase),
        limits_(limits) {}

  Simulation run() const {
    const Schedule typical = schedule_of_(typical_rank());
    const auto ranks = static_cast<std::uint64_t>(map_.ranks());
    const std::uint64_t steps = ranks * typical.steps.size();
    const std::uint64_t actions = ranks * compile(typical, model_, phase_).size();
    if (actions <= limits_.actions && steps <= limits_.steps) return whole();
    const int cell = root_ < 0 ? cell_ranks() : 0;
    if (cell > 0 && cell < map_.ranks()) {
      for (const Symmetry symmetry : {Symmetry::Shift, Symmetry::Exclusive}) {
        if (is_symmetric(cell, symmetry)) return evaluated(cell, symmetry);
      }
    }
    if (actions > limits_.most_actions || steps > limits_.most_steps) {
      throw std::length_error("the schedules of " + std::to_string(ranks) + " ranks have about " +
                              std::to_string(steps) +
                              " steps, and none stands for all the others: too many to evaluate");
    }
    return whole();
  }

 private:
  /// The last rank, whose node is not the root's: what it does is what most do.
  int typical_rank() const {
    const auto node_of = [this](int rank) { return map_.node_of[static_cast<std::size_t>(rank)]; };
    int rank = map_.ranks() - 1;
    while (root_ >= 0 && rank > 0 && node_of(rank) == node_of(root_)) --rank;
    return rank;
  }

  Simulation whole() const { return evaluated(map_.ranks(), Symmetry::None); }

  Simulation evaluated(int ranks, Symmetry symmetry) const {
    std::vector<Program> programs;
    std::uint64_t actions = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      programs.push_back(program(rank, symmetry != Symmetry::None));
      programs.back().shrink_to_fit();
      actions += programs.back().size();
      if (actions > limits_.most_actions) {
        throw std::length_error("the schedules of " + std::to_string(ranks) +
                                " ranks have too many puts and awaits to evaluate them together");
      }
    }
    const Evaluation result = evaluate(map_, programs, model_, symmetry);
    return {result.seconds, ranks, symmetry, result.puts, result.bytes_by_rail};
  }

  Program program(int rank, bool joins_pieces) const {
    return compile(schedule_of_(rank), model_, phase_, joins_pieces);
  }

  /// Ranks of the nodes that stand for all: 0 where nodes or leaf switches are not alike.
  int cell_ranks() const {
    const int size = map_.largest_node;
    if (map_.smallest_node != size) return 0;
    for (int rank = 0; rank < map_.ranks(); ++rank) {
      if (map_.node_of[static_cast<std::size_t>(rank)] != rank / size) return 0;
    }
    const std::set<int> leaves(model_.switches.leaf_nodes.begin(),
                               model_.switches.leaf_nodes.end());
    if (leaves.empty()) return size;
    const int nodes = *leaves.begin();
    return leaves.size() == 1 && map_.nodes() % nodes == 0 ? nodes * size : 0;
  }

  bool is_symmetric(int cell, Symmetry symmetry) const {
    const auto is_power = [](int number) {
      return std::has_single_bit(static_cast<unsigned>(number));
    };
    if (symmetry == Symmetry::Exclusive && !(is_power(cell) && is_power(map_.ranks()))) {
      return false;
    }
    const int cells = map_.ranks() / cell;
    for (const int rank : std::set<int>{0, cell / 2, cell - 1}) {
      const Program here = program(rank, true);
      for (const int other : std::set<int>{1, cells / 2, cells - 1}) {
        if (!are_alike(here, program(rank + other * cell, true), other * cell, symmetry)) {
          return false;
        }
      }
    }
    return true;
  }

  bool are_alike(const Program& here, const Program& there, int moved, Symmetry symmetry) const {
    const auto are = [&](const Action& a, const Action& b) {
      const double difference = std::abs(a.work_s - b.work_s);
      if (a.act != b.act || a.amount != b.amount || a.rail != b.rail ||
          difference > 1e-9 * std::max(a.work_s, b.work_s)) {
        return false;
      }
      if (a.act != Act::Put && a.act != Act::Await) return a.peer == b.peer;
      return symmetry == Symmetry::Shift ? (a.peer + moved) % map_.ranks() == b.peer
                                         : (a.peer ^ moved) == b.peer;
    };
    return std::ranges::equal(here, there, are);
  }

  const NodeMap& map_;
  const std::function<Schedule(int)>& schedule_of_;
  const Model& model_;
  const int root_;
  const NodePhase& phase_;
  const SimulationLimits& limits_;
};

}  // namespace

Simulation simulate(const NodeMap& map, const std::function<Schedule(int rank)>& schedule_of,
                    const Model& model, int root, const NodePhase& phase,
                    const SimulationLimits& limits) {
  return Simulator(map, schedule_of, model, root, phase, limits).run();
}

}  // namespace allrail::schedule
