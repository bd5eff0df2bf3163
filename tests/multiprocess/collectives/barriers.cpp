// A mode that checks what barriers promise, by the clock that all ranks of a host share: barriers.
#include <algorithm>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "tests/multiprocess/collectives/probe_support.hpp"

namespace probe {
namespace {

using allrail::Communicator;

/// How a rank comes to the barrier: its way is another one than that of the others in "mixed".
bool goes_by_plan(const Arguments& arguments, const Communicator& communicator) {
  const std::string how = arguments.text("how", "plan");
  return how == "plan" || (how == "mixed" && communicator.rank() == 1);
}

/// When a rank came to a barrier and when it left it.
struct Stay {
  double began = 0;
  double ended = 0;
};

void check(Communicator& communicator, const std::vector<Stay>& mine) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<Stay> all(mine.size() * ranks);
  communicator.allgather(mine, all);
  for (std::size_t barrier = 0; barrier < mine.size(); ++barrier) {
    for (std::size_t left = 0; left < ranks; ++left) {
      for (std::size_t came = 0; came < ranks; ++came) {
        const double ended = all[left * mine.size() + barrier].ended;
        const double began = all[came * mine.size() + barrier].began;
        if (ended >= began) continue;
        throw WrongBytes("rank " + std::to_string(left) + " left barrier " +
                         std::to_string(barrier) + " before rank " + std::to_string(came) +
                         " came to it");
      }
    }
  }
}

}  // namespace

/// Ranks come late in turn. Every other barrier by a plan has a call between its start and its end,
/// and another one in flight beside it.
int run_barriers(const Arguments& arguments) {
  auto communicator = Communicator::world();
  const bool by_plan = goes_by_plan(arguments, communicator);
  std::optional<allrail::Plan> first;
  std::optional<allrail::Plan> second;
  if (by_plan) {
    first.emplace(communicator.plan_barrier());
    second.emplace(communicator.plan_barrier());
  }
  std::vector<int> one{communicator.rank()};
  std::vector<int> ranks(static_cast<std::size_t>(communicator.size()));
  std::vector<Stay> stays;
  for (int turn = 0; turn < 40; ++turn) {
    if (turn % communicator.size() == communicator.rank()) sleep_seconds(2e-3);
    Stay stay{now_seconds(), 0};
    if (!by_plan) {
      communicator.barrier();
    } else {
      first->start();
      if (turn % 2 == 1) {
        second->start();
        communicator.allgather(one, ranks);
        second->wait();
      }
      while (turn % 4 == 2 && !first->test()) {
      }
      first->wait();
    }
    stay.ended = now_seconds();
    stays.push_back(stay);
  }
  check(communicator, stays);
  communicator.barrier();
  if (communicator.rank() == 0) say("barriers done");
  return 0;
}

}  // namespace probe
