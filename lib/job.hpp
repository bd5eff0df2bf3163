// What the communicators of one process have together. It lives as long as any of them.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "coll/engine_group.hpp"
#include "launcher/bootstrap.hpp"
#include "lib/entry_gate.hpp"
#include "lib/helper_thread.hpp"

namespace allrail {

class World;

struct Job {
  explicit Job(launcher::Bootstrap started) : bootstrap(std::move(started)) {}

  /// Once; whoever comes later finds it running.
  void start_helper() {
    if (has_helper) return;
    helper.start(gate, [this] { return engines.idle_progress(); });
    has_helper = true;
    engines.set_on_held([this] { helper.hurry(); });
  }
  /// What a new communicator may lock: a half of what is left, so that the next finds some, too.
  std::uint64_t take_lockable() {
    if (lockable_bytes == UINT64_MAX) return lockable_bytes;
    lockable_bytes -= lockable_bytes / 2;
    return lockable_bytes;
  }

  launcher::Bootstrap bootstrap;  // the launcher is left last
  bool is_one_host = true;
  /// Of the limit of locked memory, what is for the communicators that are split off.
  std::uint64_t lockable_bytes = UINT64_MAX;
  EntryGate gate;  // of whoever uses any of the communicators
  coll::EngineGroup engines;
  std::vector<World*> worlds;  // the communicators, from join_job() on
  bool has_helper = false;
  HelperThread helper;
};

}  // namespace allrail
