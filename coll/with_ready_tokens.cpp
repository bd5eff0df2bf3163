#include "coll/with_ready_tokens.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "coll/ready_token.hpp"

namespace allrail::coll {
namespace {

std::size_t owner_count(const schedule::NodeMap& map, TokensOf owners) {
  return static_cast<std::size_t>(owners == TokensOf::Ranks ? map.ranks() : map.nodes());
}

/// Adds the steps of ready tokens to a schedule without them.
class TokenSteps {
 public:
  TokenSteps(const schedule::Schedule& bare, const schedule::NodeMap& map, int rank,
             TokensOf owners, TokensTo told)
      : bare_(bare),
        map_(map),
        rank_(rank),
        owners_(owners),
        told_(told),
        tables_bytes_(token_bytes(map, owners, map.node_size(map.node_of[at(rank)]))),
        expects_token_(owner_count(map, owners), false) {
    for (const Step& step : bare.steps) {
      if (tells_or_hears(step, StepKind::Put)) expects_token_[owner(step.peer)] = true;
    }
    result_.rounds = bare.rounds;
    result_.stages = bare.stages;
    result_.token_table = {table_of(rank), owners == TokensOf::Ranks};
    result_.slot_bytes = tables_bytes_;
    if (owners == TokensOf::Ranks) result_.slot_bytes += bare.slot_bytes;
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
          expects_token_[owner(step.peer)]) {
        expects_token_[owner(step.peer)] = false;
        await_token(step);
      }
      result_.steps.push_back(behind_tables(step));
    }
    return std::move(result_);
  }

 private:
  using Step = schedule::Step;
  using StepKind = schedule::StepKind;

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  std::size_t owner(int peer) const {
    return at(owners_ == TokensOf::Ranks ? peer : map_.node_of[at(peer)]);
  }
  bool tells_or_hears(const Step& step, StepKind kind) const {
    const bool is_either = step.kind == StepKind::Put || step.kind == StepKind::Await;
    return told_ == TokensTo::All ? is_either : step.kind == kind;
  }
  /// Where the table of a rank begins in the slot of its node.
  std::uint64_t table_of(int rank) const {
    const int before = owners_ == TokensOf::Ranks ? map_.local_rank_of[at(rank)] : 0;
    return static_cast<std::uint64_t>(before) * token_bytes(map_, owners_, 1);
  }
  std::uint64_t token_of(int peer, int table_owner) const {
    return table_of(table_owner) + kTokenBytes * (owner(peer) + 1);
  }
  Step behind_tables(Step step) const {
    if (step.kind != StepKind::Copy) return step;
    if (step.from == schedule::Memory::Slot) step.from_offset += tables_bytes_;
    if (step.to == schedule::Memory::Slot) step.to_offset += tables_bytes_;
    return step;
  }

  void tell_peers() {
    Step stamp;
    stamp.kind = StepKind::Stamp;
    stamp.to = schedule::Memory::Slot;
    stamp.to_offset = table_of(rank_);
    stamp.bytes = schedule::kHeaderBytes;
    result_.steps.push_back(stamp);
    std::vector<bool> told(expects_token_.size(), false);
    for (const Step& step : bare_.steps) {
      if (!tells_or_hears(step, StepKind::Await) || told[owner(step.peer)]) continue;
      told[owner(step.peer)] = true;
      Step put;
      put.kind = StepKind::Put;
      put.from = put.to = schedule::Memory::Slot;
      put.peer = step.peer;
      put.round = step.round;
      put.port = step.port;
      put.from_offset = table_of(rank_);
      put.to_offset = token_of(rank_, step.peer);
      put.bytes = kTokenBytes;
      result_.steps.push_back(put);
    }
  }

  void await_token(const Step& before) {
    Step await;
    await.kind = StepKind::Await;
    await.to = schedule::Memory::Slot;
    await.peer = before.peer;
    await.from_offset = await.to_offset = token_of(before.peer, rank_);
    await.bytes = kTokenBytes;
    await.round = before.round;
    await.port = before.port;
    result_.steps.push_back(await);
  }

  const schedule::Schedule& bare_;
  const schedule::NodeMap& map_;
  const int rank_;
  const TokensOf owners_;
  const TokensTo told_;
  const std::uint64_t tables_bytes_;
  std::vector<bool> expects_token_;  // by owner
  schedule::Schedule result_;
};

}  // namespace

std::uint64_t token_bytes(const schedule::NodeMap& map, TokensOf owners, int node_size) {
  const std::uint64_t table = kTokenBytes * (owner_count(map, owners) + 1);
  return owners == TokensOf::Ranks ? table * static_cast<std::uint64_t>(node_size) : table;
}

schedule::Schedule with_ready_tokens(const schedule::Schedule& bare, const schedule::NodeMap& map,
                                     int rank, TokensOf owners, TokensTo told) {
  return TokenSteps(bare, map, rank, owners, told).run();
}

}  // namespace allrail::coll
