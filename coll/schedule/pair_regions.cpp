#include "coll/schedule/pair_regions.hpp"

#include <algorithm>

namespace allrail::schedule {

int pair_lanes(const PairShape& shape, Level level) {
  return level == Level::Smp ? shape.lanes() : 1;
}

PairBlocks::PairBlocks(const PairShape& shape, Level level) : shape_(shape), level_(level) {
  if (pair_lanes(shape, level) > 1) groups_.emplace(shape);
}

std::vector<int> PairBlocks::givers(int participant, int lane) const {
  if (!groups_) return ranks(participant);
  const auto group = groups_->ranks(participant, lane);
  return {group.begin(), group.end()};
}

std::uint64_t PairBlocks::region_bytes(const PairTransfer& transfer, int lane) const {
  std::uint64_t sum = kHeaderBytes;
  for (const PairBlock& block : transfer.blocks) sum += bytes(block, lane);
  return sum;
}

std::vector<const PairTransfer*> transfers_of(const PairExchange& exchange,
                                              std::vector<PairTransfer> PairRound::*direction) {
  std::vector<const PairTransfer*> transfers;
  for (const PairRound& round : exchange.rounds) {
    for (const PairTransfer& transfer : round.*direction) transfers.push_back(&transfer);
  }
  return transfers;
}

PairLayout lay_out(const PairExchange& exchange, const PairBlocks& blocks, int participant,
                   int lane) {
  PairLayout layout;
  for (const PairTransfer* await : transfers_of(exchange, &PairRound::awaits)) {
    layout.awaited.push_back(layout.end);
    layout.end += blocks.padded(*await, lane);
  }
  for (const PairTransfer* put : transfers_of(exchange, &PairRound::puts)) {
    layout.sent.push_back(layout.end);
    layout.end += blocks.padded(*put, lane);
  }
  layout.own = layout.end;
  layout.end += blocks.padded({participant, {{participant, participant}}}, lane);
  return layout;
}

bool are_alike(const PairShape& shape, Level level) {
  if (!shape.matrix.empty()) return false;
  if (level == Level::Flat) return true;
  // Groups by their order are alike on nodes that are; those that were elected need not be.
  return shape.map.smallest_node == shape.map.largest_node &&
         (shape.lanes() == 1 || !shape.grouping);
}

std::uint64_t largest_part(PairExchangeFunction exchange, const PairShape& shape, Level level) {
  const PairBlocks blocks(shape, level);
  std::uint64_t largest = 0;
  const int unlike = are_alike(shape, level) ? 1 : blocks.count();
  for (int participant = 0; participant < unlike; ++participant) {
    const auto one = exchange(blocks.count(), participant, shape.ports);
    for (int lane = 0; lane < pair_lanes(shape, level); ++lane) {
      largest = std::max(largest, lay_out(one, blocks, participant, lane).end);
    }
  }
  return largest;
}

}  // namespace allrail::schedule
