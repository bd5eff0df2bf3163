// Names in /dev/shm whose creator died before it took them away: of node segments and of memory of
// Buffers. Without the rest of shm/, so that the launcher may use it.
#pragma once

namespace allrail::shm {

struct Sweep {
  int removed = 0;
  /// Names whose creator is being ended and may take some milliseconds yet: they stay this time.
  int ending = 0;
};

/// Removes names of this user whose creator is certainly dead, whichever job they are of: a job of
/// living ranks keeps its own. `on_removed` is told each of them, where it is not null.
Sweep sweep_leftovers(void (*on_removed)(const char* name)) noexcept;

}  // namespace allrail::shm
