#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "coll/schedule/replay.hpp"
#include "coll/schedule/replay_bytes.hpp"

// How far every rank of a replay has come, and what that allows the others to do: the rules of
// slots, of receive buffers, and of receive buffers that a node shares.
namespace allrail::schedule {

struct RankState {
  int call = 0;
  std::size_t step = 0;
  std::uint32_t stage = 0;          // of my flag in this call
  bool stamped = false;             // in this call
  std::optional<Step> offer;        // in this call
  std::vector<int> puts_in_flight;  // by call
};

/// The Once step of a call on a node.
struct OnceState {
  int rank = -1;         // that makes the copies
  std::size_t made = 0;  // of them
  bool done = false;
};

class ReplayRanks {
 public:
  ReplayRanks(std::span<const ReplayCall> calls, const ReplayOptions& options);

  RankState& operator[](int rank) { return ranks_[rank]; }
  const RankState& operator[](int rank) const { return ranks_[rank]; }
  std::size_t size() const { return ranks_.size(); }

  bool finished(int rank) const { return ranks_[rank].call == static_cast<int>(calls_.size()); }
  const Step& current(int rank) const {
    return calls_[ranks_[rank].call].schedules[rank].steps[ranks_[rank].step];
  }
  /// Whether the rank has run all steps of the call that it is in.
  bool through(int rank) const {
    return ranks_[rank].step == calls_[ranks_[rank].call].schedules[rank].steps.size();
  }
  void enter_next_call(int rank);
  OnceState& once(int rank) {
    return once_[static_cast<std::size_t>(ranks_[rank].call)][map_.node_of[rank]];
  }

  /// The rank that has this number on the node of `rank`.
  int local(int rank, int number) const { return map_.ranks_of[map_.node_of[rank]][number]; }
  /// Whether every rank of `node` is done with the call that had the slot of `call` before.
  bool slot_free(int call, int node) const;
  /// Peers put into a receive buffer when its owner has entered the call; into one that a node
  /// shares, when the leader's stamp says that all have.
  bool is_ready(int call, int owner) const;
  /// A write of `call` into the receive buffer of `rank`: what else the node may still use it for.
  void check_shared(int call, int rank, const Step& step, Findings& findings) const;

 private:
  /// A rank of the node of `rank` that may still read the last result where `rank` writes its part
  /// of a shared one, or -1.
  int still_reads(int call, int rank) const;

  std::span<const ReplayCall> calls_;
  const ReplayOptions options_;
  const NodeMap& map_;
  std::vector<RankState> ranks_;
  std::vector<std::vector<OnceState>> once_;  // by call, by node
};

}  // namespace allrail::schedule
