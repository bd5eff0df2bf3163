// Bodies that attract each other, by direct summation: every rank moves a block of them, and all
// ranks learn where all bodies are in every step, by one allgatherv. The application of Qian and
// Afsahi 2008. Run it with several algorithms to compare the time that they take:
//   allrail-run -n 8 --nodes 4 nbody --bodies 4000 --algorithm auto,smp-ring,direct
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <allrail/allrail.hpp>

namespace {

using Vector = std::array<double, 3>;
using Counts = std::vector<std::size_t>;
constexpr double kTimeStep = 1e-3;
constexpr double kSoftening = 1e-4;  // no two bodies are nearer than this, squared

struct Bodies {
  std::vector<Vector> positions, velocities;
};

/// The same on every rank.
Bodies make_bodies(std::size_t count) {
  std::uint64_t state = 88172645463325252ULL;
  const auto next = [&state] {  // between -1 and 1
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<double>(state >> 11) * 0x1p-52 - 1.0;
  };
  Bodies bodies;
  for (std::size_t i = 0; i < count; ++i) {
    bodies.positions.push_back({next(), next(), next()});
    bodies.velocities.push_back({0.1 * next(), 0.1 * next(), 0.1 * next()});
  }
  return bodies;
}

/// Moves `mine`, the bodies from `first` on, one step further, by the places of all. Sums in the
/// order of the bodies, so that the result does not depend on the number of ranks.
void step_forward(const std::vector<Vector>& all, std::size_t first, Bodies& mine) {
  const double mass = 1.0 / static_cast<double>(all.size());
  for (std::size_t i = 0; i < mine.positions.size(); ++i) {
    const Vector& here = all[first + i];
    Vector force{};
    for (const Vector& there : all) {
      const Vector way{there[0] - here[0], there[1] - here[1], there[2] - here[2]};
      const double square = way[0] * way[0] + way[1] * way[1] + way[2] * way[2] + kSoftening;
      const double pull = mass / (square * std::sqrt(square));
      for (std::size_t axis = 0; axis < 3; ++axis) force[axis] += pull * way[axis];
    }
    for (std::size_t axis = 0; axis < 3; ++axis) {
      mine.velocities[i][axis] += kTimeStep * force[axis];
      mine.positions[i][axis] = here[axis] + kTimeStep * mine.velocities[i][axis];
    }
  }
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Run {
  std::vector<Vector> positions;
  double communication_s = 0;  // of the slowest rank
  double whole_s = 0;
};

Run simulate(allrail::Communicator& comm, std::size_t count, int steps,
             const std::string& algorithm) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto me = static_cast<std::size_t>(comm.rank());
  Counts counts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    counts.push_back(count * (rank + 1) / ranks - count * rank / ranks);
  }
  const std::size_t first = count * me / ranks;
  const Bodies all = make_bodies(count);
  Bodies mine;
  const auto begin_at = static_cast<std::ptrdiff_t>(first);
  const auto end_at = begin_at + static_cast<std::ptrdiff_t>(counts[me]);
  mine.positions.assign(all.positions.begin() + begin_at, all.positions.begin() + end_at);
  mine.velocities.assign(all.velocities.begin() + begin_at, all.velocities.begin() + end_at);

  allrail::CallOptions options;
  options.algorithm = algorithm == "auto" ? "" : algorithm;
  Run run;
  run.positions = all.positions;
  comm.barrier();
  double communication_s = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) {
    step_forward(run.positions, first, mine);
    const auto call = std::chrono::steady_clock::now();
    comm.allgatherv(mine.positions, run.positions, counts, options);
    communication_s += seconds_since(call);
  }
  const std::array<double, 2> times{communication_s, seconds_since(begin)};
  std::vector<std::array<double, 2>> of_ranks(ranks);
  comm.allgather(std::vector{times}, of_ranks);
  for (const auto& [communication, whole] : of_ranks) {
    run.communication_s = std::max(run.communication_s, communication);
    run.whole_s = std::max(run.whole_s, whole);
  }
  return run;
}

std::vector<Vector> simulate_alone(std::size_t count, int steps) {
  Bodies all = make_bodies(count);
  for (int step = 0; step < steps; ++step) {
    const std::vector<Vector> before = all.positions;
    step_forward(before, 0, all);
  }
  return all.positions;
}

int run(const std::map<std::string, std::string>& words) {
  const auto count = static_cast<std::size_t>(std::stoul(words.at("--bodies")));
  const int steps = std::stoi(words.at("--steps"));
  allrail::Communicator comm = allrail::Communicator::world();
  const std::vector<Vector> expected = simulate_alone(count, steps);
  std::istringstream algorithms(words.at("--algorithm"));
  for (std::string algorithm; std::getline(algorithms, algorithm, ',');) {
    const Run run = simulate(comm, count, steps, algorithm);
    const bool is_right = run.positions == expected;
    if (!is_right || comm.rank() == 0) {
      std::ostringstream line;
      line << "nbody: " << count << " bodies, " << comm.size() << " ranks on " << comm.node_count()
           << " nodes, " << algorithm << ": " << 1e6 * run.communication_s / steps
           << " us of communication in a step of " << 1e6 * run.whole_s / steps << " us; "
           << (is_right ? "equal to" : "DIFFERENT from") << " a run on one processor\n";
      std::cout << line.str() << std::flush;
    }
    if (!is_right) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> words{
      {"--bodies", "1000"}, {"--steps", "20"}, {"--algorithm", "auto"}};
  for (int at = 1; at < argc; at += 2) {
    if (!words.contains(argv[at]) || at + 1 == argc) {
      std::cerr << "usage: nbody [--bodies N] [--steps N] [--algorithm NAME[,NAME...]]\n";
      return 2;
    }
    words[argv[at]] = argv[at + 1];
  }
  try {
    return run(words);
  } catch (const std::exception& error) {
    std::cerr << "nbody failed: " << error.what() << '\n';
    return 1;
  }
}
