#include "coll/with_ready_tokens.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "coll/ready_token.hpp"

namespace allrail::coll {
namespace {

/// Adds the steps of ready tokens to a schedule without them.
class ReadyTokens {
 public:
  ReadyTokens(const schedule::Schedule& bare, const schedule::NodeMap& map, int rank)
      : bare_(bare), map_(map), rank_(rank), expects_token_(nodes(), false) {
    for (const Step& step : bare.steps) {
      if (step.kind == StepKind::Put) expects_token_[node_of(step.peer)] = true;
    }
    result_.rounds = bare.rounds;
    result_.stages = bare.stages;
    result_.slot_bytes = kTokenBytes * (nodes() + 1);
  }

  schedule::Schedule run() {
    const auto is = [this](StepKind kind) {
      return std::ranges::find(bare_.steps, kind, &Step::kind) != bare_.steps.end();
    };
    const bool talks = is(StepKind::Put) || is(StepKind::Await);
    if (talks && !is(StepKind::Stamp)) tell_peers();
    for (const Step& step : bare_.steps) {
      if (step.kind == StepKind::Stamp) {
        tell_peers();
        continue;
      }
      // A peer sends its token before its data, so the token is awaited before the data too.
      if ((step.kind == StepKind::Put || step.kind == StepKind::Await) &&
          expects_token_[node_of(step.peer)]) {
        expects_token_[node_of(step.peer)] = false;
        await_token(step);
      }
      result_.steps.push_back(step);
    }
    return std::move(result_);
  }

 private:
  using Step = schedule::Step;
  using StepKind = schedule::StepKind;

  std::size_t nodes() const { return static_cast<std::size_t>(map_.nodes()); }
  std::size_t node_of(int peer) const {
    return static_cast<std::size_t>(map_.node_of[static_cast<std::size_t>(peer)]);
  }
  std::uint64_t token_of(int peer) const { return kTokenBytes * (node_of(peer) + 1); }

  void tell_peers() {
    Step stamp;
    stamp.kind = StepKind::Stamp;
    stamp.to = schedule::Memory::Slot;
    stamp.bytes = schedule::kHeaderBytes;
    result_.steps.push_back(stamp);
    std::vector<bool> told(nodes(), false);
    for (const Step& step : bare_.steps) {
      if (step.kind != StepKind::Await || told[node_of(step.peer)]) continue;
      told[node_of(step.peer)] = true;
      Step put;
      put.kind = StepKind::Put;
      put.from = put.to = schedule::Memory::Slot;
      put.peer = step.peer;
      put.round = step.round;
      put.port = step.port;
      put.to_offset = token_of(rank_);
      put.bytes = kTokenBytes;
      result_.steps.push_back(put);
    }
  }

  void await_token(const Step& before) {
    Step await;
    await.kind = StepKind::Await;
    await.to = schedule::Memory::Slot;
    await.peer = before.peer;
    await.from_offset = await.to_offset = token_of(before.peer);
    await.bytes = kTokenBytes;
    await.round = before.round;
    await.port = before.port;
    result_.steps.push_back(await);
  }

  const schedule::Schedule& bare_;
  const schedule::NodeMap& map_;
  const int rank_;
  std::vector<bool> expects_token_;  // by node
  schedule::Schedule result_;
};

}  // namespace

schedule::Schedule with_ready_tokens(const schedule::Schedule& bare, const schedule::NodeMap& map,
                                     int rank) {
  return ReadyTokens(bare, map, rank).run();
}

}  // namespace allrail::coll
