// How the control plane sees its own node. Whoever owns the node segment implements it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace allrail::transport {

/// Why the job ends: the same text on every rank.
struct AbortCause {
  int code = 0;  // a Code
  int peer = -1;
  std::string text;
};

/// What a local rank said about itself.
struct LocalProgress {
  enum class State { Joining, Active, Goodbye };
  int rank = -1;
  State state = State::Joining;
  bool in_call = false;
  std::uint64_t sequence = 0;  // the call it is in, or was in last; 0: none, or just changing
  std::uint64_t stamp = 0;     // of that call
  std::uint64_t last = 0;      // the call it is in or was in last; 0: none, or just changing
};

/// All functions are called from the helper thread and must not block.
class LocalNode {
 public:
  virtual ~LocalNode() = default;
  virtual bool aborted() = 0;
  virtual AbortCause abort_cause() = 0;
  /// Without effect if there is a cause already.
  virtual void set_abort(const AbortCause& cause) = 0;
  /// The rank that holds others up, or -1: for the texts of warnings and timeouts.
  virtual void set_late(int rank) = 0;
  /// Fills in one entry per local rank, in the order of the processes that the control plane was
  /// given. `progress` has that size already.
  virtual void read_progress(std::vector<LocalProgress>& progress) = 0;
  /// The stamp of a call that local rank `local` is in or was in not long ago; 0 where that is not
  /// known, or just changing.
  virtual std::uint64_t stamp_of(std::size_t local, std::uint64_t call) = 0;
};

}  // namespace allrail::transport
