#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "coll/schedule/replay.hpp"

namespace allrail::schedule {
namespace {

/// The puts or the awaits of every ordered pair, in schedule order, by sender * ranks + receiver.
using Pairs = std::unordered_map<std::uint64_t, std::vector<Step>>;

std::string pair_name(std::uint64_t pair, std::uint64_t ranks) {
  return "from rank " + std::to_string(pair / ranks) + " to rank " + std::to_string(pair % ranks);
}

void compare(const Pairs& puts, const Pairs& awaits, std::uint64_t ranks,
             std::vector<Violation>& violations) {
  const std::vector<Step> none;
  for (const auto& [pair, sent] : puts) {
    const auto found = awaits.find(pair);
    const std::vector<Step>& awaited = found == awaits.end() ? none : found->second;
    if (sent.size() != awaited.size()) {
      violations.push_back({Fault::PutAwaitMismatch,
                            std::to_string(sent.size()) + " puts " + pair_name(pair, ranks) +
                                " meet " + std::to_string(awaited.size()) + " awaits"});
    }
    for (std::size_t i = 0; i < std::min(sent.size(), awaited.size()); ++i) {
      const Step& put = sent[i];
      const Step& await = awaited[i];
      if (put.to != await.to || put.to_offset != await.to_offset || put.bytes != await.bytes) {
        violations.push_back({Fault::PutAwaitMismatch,
                              "put " + std::to_string(i) + " " + pair_name(pair, ranks) +
                                  " brings " + std::to_string(put.bytes) + " bytes to offset " +
                                  std::to_string(put.to_offset) + ", but " +
                                  std::to_string(await.bytes) + " bytes at offset " +
                                  std::to_string(await.to_offset) + " are awaited"});
        break;
      }
      if (put.round != await.round || put.port != await.port) {
        violations.push_back(
            {Fault::PutAwaitMismatch, "put " + std::to_string(i) + " " + pair_name(pair, ranks) +
                                          " is of round " + std::to_string(put.round) + ", port " +
                                          std::to_string(put.port) + ", and awaited in round " +
                                          std::to_string(await.round) + ", at port " +
                                          std::to_string(await.port)});
        break;
      }
    }
  }
  for (const auto& [pair, awaited] : awaits) {
    if (!puts.contains(pair)) {
      violations.push_back({Fault::PutAwaitMismatch, std::to_string(awaited.size()) + " awaits " +
                                                         pair_name(pair, ranks) + " meet no put"});
    }
  }
}

void check_flags(const ReplayCall& call, std::vector<Violation>& violations) {
  const NodeMap& map = call.shape.map;
  std::vector<std::uint32_t> highest(map.node_of.size(), 0);  // stage published, by rank
  for (int rank = 0; rank < map.ranks(); ++rank) {
    for (const Step& step : call.schedules[rank].steps) {
      if (step.kind != StepKind::Publish && step.kind != StepKind::Offer) {
        continue;
      }
      if (step.stage <= highest[rank] || step.stage > call.schedules[rank].stages) {
        violations.push_back(
            {Fault::FlagNotRising, "rank " + std::to_string(rank) + " publishes stage " +
                                       std::to_string(step.stage) + " after stage " +
                                       std::to_string(highest[rank]) + "; its schedule has " +
                                       std::to_string(call.schedules[rank].stages) + " stages"});
      }
      highest[rank] = std::max(highest[rank], step.stage);
    }
  }
  for (int rank = 0; rank < map.ranks(); ++rank) {
    const std::vector<int>& local = map.ranks_of[map.node_of[rank]];
    for (const Step& step : call.schedules[rank].steps) {
      if (step.kind != StepKind::AwaitLocal && step.kind != StepKind::Read) {
        continue;
      }
      if (step.peer < 0 || step.peer >= static_cast<int>(local.size())) {
        violations.push_back({Fault::NoSuchPeer, "rank " + std::to_string(rank) +
                                                     " waits for, or reads, local rank " +
                                                     std::to_string(step.peer)});
        break;
      }
      if (highest[local[step.peer]] < step.stage) {
        violations.push_back(
            {Fault::FlagNeverRaised, "rank " + std::to_string(rank) + " waits until local rank " +
                                         std::to_string(step.peer) + " publishes stage " +
                                         std::to_string(step.stage) + ", which it never does"});
        break;
      }
    }
  }
}

}  // namespace

std::vector<Violation> check_pairs(const ReplayCall& call) {
  std::vector<Violation> violations;
  Pairs puts;
  Pairs awaits;
  const std::uint64_t ranks = call.schedules.size();
  if (ranks == 0) {
    return violations;
  }
  for (std::uint64_t rank = 0; rank < ranks; ++rank) {
    for (const Step& step : call.schedules[rank].steps) {
      if (step.kind != StepKind::Put && step.kind != StepKind::Await) {
        continue;
      }
      if (step.peer < 0 || static_cast<std::uint64_t>(step.peer) >= ranks ||
          static_cast<std::uint64_t>(step.peer) == rank) {
        violations.push_back(
            {Fault::NoSuchPeer,
             "rank " + std::to_string(rank) + " exchanges with rank " + std::to_string(step.peer)});
      } else if (step.kind == StepKind::Put) {
        puts[rank * ranks + static_cast<std::uint64_t>(step.peer)].push_back(step);
      } else {
        awaits[static_cast<std::uint64_t>(step.peer) * ranks + rank].push_back(step);
      }
    }
  }
  compare(puts, awaits, ranks, violations);
  check_flags(call, violations);
  return violations;
}

}  // namespace allrail::schedule
