// What stands behind a Plan of the public API.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "coll/call_run.hpp"
#include "coll/plan.hpp"
#include "transport/pace.hpp"

namespace allrail {

class World;

/// Shared by the user's Plan and its World, either of which may be destroyed first: the world takes
/// the memory from the rails while there are rails.
struct UserPlan {
  World* world = nullptr;  // null once the communicator is gone
  std::unique_ptr<coll::CallPlan> plan;
  // What is started instead over rails of a known pace; null: the same.
  std::array<std::unique_ptr<coll::CallPlan>, transport::kPaces> at_pace;
  std::chrono::milliseconds timeout{0};  // 0: none
  coll::CallRun run;
  // Of an alltoall in place that goes straight between user buffers: what is sent, see must_copy().
  std::vector<std::byte> sent_copy;
  bool buffer_is_gone = false;  // that it sends from or receives into
  bool started = false;         // ever
  bool running = false;         // until the user is told that the call has ended
};

}  // namespace allrail
