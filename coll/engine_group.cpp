#include "coll/engine_group.hpp"

#include <algorithm>

#include "coll/engine.hpp"

namespace allrail::coll {
namespace {

// Nobody waits for an idle communicator to be quick, and a look at its links costs system calls.
constexpr std::int64_t kIdleLookNs = 5'000'000;

}  // namespace

void EngineGroup::leave(const Engine& engine) noexcept {
  std::erase(engines_, &engine);
  if (holder_ == &engine) holder_ = nullptr;
}

void EngineGroup::hand_over_held() { std::exchange(holder_, nullptr)->hand_over(); }

bool EngineGroup::any_other_in_flight(const Engine& mine) const noexcept {
  return std::ranges::any_of(
      engines_, [&mine](const Engine* one) { return one != &mine && one->in_flight(); });
}

bool EngineGroup::advance_others(const Engine& mine) {
  bool moved = false;
  for (Engine* const one : engines_) {
    if (one != &mine && one->in_flight()) moved = one->go_on() || moved;
  }
  return moved;
}

void EngineGroup::look_after_others(const Engine& mine, std::int64_t now_ns) {
  for (Engine* const one : engines_) {
    if (one != &mine) one->notice_end();
  }
  if (now_ns < next_look_ns_) return;
  next_look_ns_ = now_ns + kIdleLookNs;
  for (Engine* const one : engines_) {
    if (one != &mine && !one->in_flight()) one->idle_progress();
  }
}

const Engine* EngineGroup::where_awaited(const Engine& mine, int job_rank) const noexcept {
  const auto found = std::ranges::find_if(engines_, [&mine, job_rank](const Engine* one) {
    return one != &mine && one->is_awaited_by(job_rank);
  });
  return found == engines_.end() ? nullptr : *found;
}

void EngineGroup::end_others(const Engine& ended, const shm::AbortRecord& cause) {
  for (Engine* const one : engines_) {
    if (one != &ended) one->end_with(ended.team(), cause);
  }
}

bool EngineGroup::idle_progress() {
  bool any_held = false;
  for (Engine* const one : engines_) {
    one->idle_progress();
    any_held = one->holds() || any_held;
  }
  return any_held;
}

}  // namespace allrail::coll
