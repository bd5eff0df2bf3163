#include "coll/schedule/replay_ranks.hpp"

#include <algorithm>

namespace allrail::schedule {

ReplayRanks::ReplayRanks(std::span<const ReplayCall> calls, const ReplayOptions& options)
    : calls_(calls),
      options_(options),
      map_(calls.front().shape.map),
      ranks_(map_.node_of.size()),
      once_(calls.size(), std::vector<OnceState>(map_.nodes())) {
  for (RankState& rank : ranks_) {
    rank.puts_in_flight.assign(calls.size(), 0);
  }
}

void ReplayRanks::enter_next_call(int rank) {
  RankState& state = ranks_[rank];
  ++state.call;
  state.step = 0;
  state.stage = 0;
  state.stamped = false;
  state.offer.reset();
}

bool ReplayRanks::slot_free(int call, int node) const {
  const int before = call - options_.slots;
  if (!options_.done_rule || before < 0) return true;
  // A done count says that all calls up to it are done. A call that goes straight between user
  // buffers may be over while puts out of the slot of an earlier one are still in flight.
  return std::ranges::all_of(map_.ranks_of[node], [&](int rank) {
    const std::span<const int> puts(ranks_[rank].puts_in_flight);
    return ranks_[rank].call > before &&
           std::ranges::all_of(puts.first(static_cast<std::size_t>(before) + 1),
                               [](int in_flight) { return in_flight == 0; });
  });
}

bool ReplayRanks::is_ready(int call, int owner) const {
  const RankState& state = ranks_[owner];
  return state.call > call || (state.call == call && (state.stamped || !calls_[call].node_shared));
}

int ReplayRanks::still_reads(int call, int rank) const {
  for (const int local : map_.ranks_of[map_.node_of[rank]]) {
    const RankState& other = ranks_[local];
    // A rank that runs its first step now has entered by that.
    const bool entered =
        other.call > call || (other.call == call && (other.step > 0 || local == rank));
    if (!entered) {
      return local;
    }
  }
  return -1;
}

void ReplayRanks::check_shared(int call, int rank, const Step& step, Findings& findings) const {
  if (step.to != Memory::Receive || !calls_[call].node_shared) return;
  const int reader = still_reads(call, rank);
  if (reader >= 0) {
    findings.add(Fault::OverwrittenInUse, Findings::where(call, rank, step) +
                                              " writes where rank " + std::to_string(reader) +
                                              " may still read the last result");
  }
}

}  // namespace allrail::schedule
