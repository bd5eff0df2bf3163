// The engines of one process, one for each communicator of its job. Whoever waits in one goes on
// with the calls of the others meanwhile, and all of them end together.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "shm/segment.hpp"

namespace allrail::coll {

class Engine;

/// Used by whoever is inside Allrail; engines join and leave between calls.
class EngineGroup {
 public:
  /// `engine` is borrowed until it leaves.
  void join(Engine& engine) { engines_.push_back(&engine); }
  void leave(const Engine& engine) noexcept;

  /// Whether calls of another engine than `mine` are in flight. Cannot become true while `mine`
  /// waits.
  bool others_in_flight(const Engine& mine) const noexcept {
    return engines_.size() > 1 && any_other_in_flight(mine);
  }
  /// Goes on with the calls of others. True if anything moved. What goes wrong there ends all.
  bool advance_others(const Engine& mine);
  /// What a wait that lasts does for the others: those that are idle answer their peers, and the
  /// end of one of them, which a rank that is in none of its calls would not see, ends all.
  void look_after_others(const Engine& mine, std::int64_t now_ns);
  /// The other engine in which a rank of this node waits for a call of this process that is not
  /// begun; null if there is none.
  const Engine* where_awaited(const Engine& mine, int job_rank) const noexcept;
  /// `ended` has, of this cause: so do all others.
  void end_others(const Engine& ended, const shm::AbortRecord& cause);
  /// `on_held` is called when a call leaves puts in its rails: it sees to it that idle_progress()
  /// comes soon, unless the user does.
  void set_on_held(std::function<void()> on_held) { on_held_ = std::move(on_held); }
  void note_held(Engine& holder) {
    hand_over_others(holder);
    holder_ = &holder;
    if (on_held_) on_held_();
  }
  /// What any of them left in its rails leaves: before whatever takes its time and is no call.
  void hand_over() {
    if (holder_ != nullptr) hand_over_held();
  }
  /// Before a call of `mine`: what another left in its rails leaves.
  void hand_over_others(const Engine& mine) {
    if (holder_ != nullptr && holder_ != &mine) hand_over_held();
  }
  /// Progress of all while the user is elsewhere; for the helper thread. True if something that was
  /// left in rails is there still.
  bool idle_progress();

 private:
  bool any_other_in_flight(const Engine& mine) const noexcept;
  void hand_over_held();

  std::vector<Engine*> engines_;
  std::int64_t next_look_ns_ = 0;
  std::function<void()> on_held_;
  Engine* holder_ = nullptr;  // the last that left puts in its rails, and may have them still
};

}  // namespace allrail::coll
