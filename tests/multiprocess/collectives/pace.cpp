// A mode in which it becomes known that the rails are fast, or slow, while some ranks have a plan
// of what others call without one: pace.
#include <algorithm>
#include <optional>

#include "lib/diagnostics.hpp"
#include "tests/multiprocess/collectives/probe_support.hpp"

namespace probe {

/// A broadcast and a barrier in turn. Even ranks make their plan before all calls, odd ones half
/// way; without one they make the same call.
int run_pace(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  const int me = communicator.rank();
  const auto calls = static_cast<std::uint64_t>(arguments.number("calls", 200));
  std::vector<unsigned char> data(static_cast<std::size_t>(arguments.number("bytes", 65536)));
  std::optional<allrail::Plan> plan;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    if (call == (me % 2 == 0 ? 1 : calls / 2)) plan.emplace(communicator.plan_broadcast(data, 0));
    if (me == 0) {
      fill_pattern(data, 0, call);
    } else {
      std::ranges::fill(data, static_cast<unsigned char>(0));
    }
    if (plan) {
      plan->start();
      plan->wait();
    } else {
      communicator.broadcast(data, 0);
    }
    if (const auto wrong = find_wrong_byte(data, 0, call); wrong >= 0) {
      throw WrongBytes("wrong byte at rank " + std::to_string(me) + ": byte " +
                       std::to_string(wrong) + " of call " + std::to_string(call));
    }
    communicator.barrier();
  }
  const auto choice = allrail::diagnostics::choose(communicator, "broadcast", data.size());
  if (me == 0) say("pace done, in the end by " + choice.algorithm);
  return 0;
}

}  // namespace probe
