// Mode split-switches: communicators that are split off know the leaf switches of their nodes, and
// their gathers and scatters go by them.
#include <algorithm>
#include <map>
#include <set>

#include "lib/diagnostics.hpp"
#include "tests/multiprocess/collectives/rooted_caller.hpp"
#include "tests/multiprocess/collectives/split_support.hpp"

namespace probe {
namespace {

using allrail::Communicator;

/// The leaf switch and the chassis of a node.
using Place = std::pair<std::string, std::string>;

/// By node; empty: not known.
std::vector<Place> places_of(const Communicator& communicator) {
  std::vector<Place> places;
  for (const auto& leaf : allrail::diagnostics::describe_switches(communicator)) {
    for (const int node : leaf.nodes) {
      const auto at = static_cast<std::size_t>(node);
      places.resize(std::max(places.size(), at + 1));
      places[at] = {leaf.name, leaf.chassis_name};
    }
  }
  return places;
}

/// What the whole job knows of itself.
struct Job {
  std::vector<int> node_of;
  std::vector<Place> places;
};

/// Where the nodes of a part hang in the eyes of the whole job, by nodes of the job.
std::map<int, Place> expected_places(const Part& part, const Job& job) {
  std::map<int, Place> expected;
  for (const int member : part.members) {
    const int node = job.node_of[static_cast<std::size_t>(member)];
    if (!job.places.empty()) expected[node] = job.places[static_cast<std::size_t>(node)];
  }
  return expected;
}

void expect(bool right, const Part& part, const std::string& what) {
  if (!right) throw WrongBytes("wrong switches of " + part.name + ": " + what);
}

/// Nodes are numbered anew in a part; where they hang stays.
void check_places(const Part& part, const Job& job) {
  const std::vector<Place> places = places_of(*part.communicator);
  expect(places.empty() == job.places.empty(), part, "known in one communicator only");
  if (places.empty()) return;
  const auto of_part = allrail::diagnostics::describe_job(*part.communicator).node_of;
  for (std::size_t rank = 0; rank < part.members.size(); ++rank) {
    const int in_job = job.node_of[static_cast<std::size_t>(part.members[rank])];
    const Place& place = places.at(static_cast<std::size_t>(of_part[rank]));
    expect(
        place == job.places[static_cast<std::size_t>(in_job)], part,
        "rank " + std::to_string(rank) + " hangs on " + place.first + " of '" + place.second + "'");
  }
}

/// Whether small gathers and scatters go over switches, which is expected where at least two have
/// several nodes each; and whether they would if told to, for which two switches are enough.
bool check_choice(const Part& part, const Job& job) {
  std::map<std::string, int> nodes_of;  // by leaf
  for (const auto& [node, place] : expected_places(part, job)) ++nodes_of[place.first];
  const auto shared =
      std::ranges::count_if(nodes_of, [](const auto& one) { return one.second > 1; });
  for (const char* const collective : {"gather", "scatter"}) {
    const auto chosen = allrail::diagnostics::choose(*part.communicator, collective,
                                                     std::array<std::size_t, 1>{64});
    expect((chosen.algorithm == "topology") == (shared > 1), part,
           std::string(collective) + " by " + chosen.algorithm + ", " + chosen.reason);
    allrail::CallOptions asked;
    asked.algorithm = "topology";
    const auto told = allrail::diagnostics::choose(*part.communicator, collective,
                                                   std::array<std::size_t, 1>{64}, asked);
    const bool is_flat = told.reason.find("no two leaf switches") != std::string::npos;
    expect(told.algorithm == "topology" && is_flat == (nodes_of.size() < 2), part,
           std::string(collective) + " that is told to: " + told.reason);
  }
  return shared > 1;
}

/// Every root, by what is chosen and by both ways over switches.
void check_bytes(Part& part) {
  RootedCaller caller(*part.communicator);
  std::uint64_t number = part.number() * 100'000;
  for (const auto kind :
       {RootedKind::Gather, RootedKind::Gatherv, RootedKind::Scatter, RootedKind::Scatterv}) {
    for (const char* const algorithm : {"", "topology", "topology-direct"}) {
      for (int root = 0; root < part.communicator->size(); ++root) {
        for (const std::size_t bytes : {64, 5000}) {
          RootedCall call;
          call.kind = kind;
          call.number = ++number;
          call.root = root;
          call.bytes = bytes;
          call.in_place = call.displaced = number % 2 == 0;
          call.by_plan = number % 3 == 0;
          call.options.algorithm = algorithm;
          caller.make(call);
        }
      }
    }
  }
}

}  // namespace

int run_split_switches(const Arguments& arguments) {
  auto world = Communicator::world();
  const Job job{allrail::diagnostics::describe_job(world).node_of, places_of(world)};
  auto parts = make_parts(world, static_cast<int>(arguments.number("columns", 2)));
  std::string by_topology;
  for (Part& part : parts) {
    if (!part.communicator) continue;
    check_places(part, job);
    if (check_choice(part, job)) by_topology += " " + part.name + ",";
    check_bytes(part);
  }
  world.barrier();
  say("rank " + std::to_string(world.rank()) + " by topology:" + by_topology);
  if (world.rank() == 0) say("split-switches done");
  return 0;
}

}  // namespace probe
