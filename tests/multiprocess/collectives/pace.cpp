// A mode in which it becomes known that the rails are fast, or slow, while some ranks have a plan
// of what others call without one: pace.
#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "lib/diagnostics.hpp"
#include "tests/multiprocess/collectives/probe_support.hpp"

namespace probe {
namespace {

/// Whether alltoalls of 512 KiB register user memory: a call, and one by a plan.
bool goes_straight(allrail::Communicator& communicator) {
  const std::size_t block = 512 << 10;
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<unsigned char> send(block * ranks);
  std::vector<unsigned char> receive(send.size());
  const auto call = [&](std::uint64_t number, auto&& exchange) {
    const auto me = static_cast<std::size_t>(communicator.rank());
    const std::uint64_t before = registrations(communicator);
    for (std::size_t to = 0; to < ranks; ++to) {
      fill_pattern(std::span(send).subspan(to * block, block), communicator.rank(), number + to);
    }
    exchange();
    for (std::size_t from = 0; from < ranks; ++from) {
      const auto received = std::span(receive).subspan(from * block, block);
      if (find_wrong_byte(received, static_cast<int>(from), number + me) < 0) continue;
      throw WrongBytes("wrong byte from rank " + std::to_string(from) + " in an alltoall");
    }
    return registrations(communicator) != before;
  };
  allrail::Plan plan = communicator.plan_alltoall(send, receive);
  const bool of_call = call(100, [&] { communicator.alltoall(send, receive); });
  const bool of_plan = call(200, [&] {
    plan.start();
    plan.wait();
  });
  if (of_call != of_plan) throw WrongBytes("a plan goes another way than a call");
  return of_call;
}

}  // namespace

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
  const auto choice =
      allrail::diagnostics::choose(communicator, "broadcast", std::array{data.size()});
  const bool is_straight = goes_straight(communicator);
  if (me == 0) {
    say("pace done, in the end by " + choice.algorithm + ", alltoalls " +
        (is_straight ? "straight" : "copied"));
  }
  return 0;
}

}  // namespace probe
