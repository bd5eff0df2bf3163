// How many of its turns each rail keeps. Pure: no rail and no clock is touched here.
//
// Puts that are answered and not cut take the rails by turns, which fills rails alike; where one is
// slower than another, that one decides how long a call takes, and the other is idle meanwhile.
// They ask for no acknowledgements, so nobody measures how fast they are carried. But what is given
// to a rail that is full is still on this host a while later, and what is given to one that could
// carry more is gone at once. So a rail at which chunks stay more often than at another one, and
// not by chance, gives up a part of its turns.
#pragma once

#include <array>
#include <cstddef>

#include "transport/rail.hpp"

namespace allrail::transport {

class TurnShares {
 public:
  /// A chunk that was watched was still on this host after a while, or had left by then.
  void saw(int rail, bool stayed);
  /// Whether a chunk stayed lately, so that there is something to learn.
  bool is_some_full() const { return is_some_full_; }
  /// Which rail of the set (a bit for each) takes a turn of one of them. `turn` counts that rail's.
  int rail_for(int in_turn, unsigned turn, unsigned rails) const;
  /// Of its turns, how many the rail keeps.
  double share(int rail) const { return turns_[static_cast<std::size_t>(rail)].share; }

 private:
  struct Turns {
    double share = 1;
    // Chunks since a share followed from them, and how many of these stayed.
    int seen = 0;
    int stayed = 0;
    bool is_known = false;

    double staying_share() const { return static_cast<double>(stayed) / seen; }
  };
  static bool are_unlike(const Turns& full, const Turns& other);
  void compare(Turns& full, Turns& other);

  std::array<Turns, kMaxRails> turns_{};
  bool is_some_full_ = false;
};

}  // namespace allrail::transport
