#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "coll/schedule/pairs.hpp"
#include "coll/schedule/step_list.hpp"

// The slot memory of a participant: a region for every transfer that it awaits, in order, then one
// for every transfer that it puts, then what its own ranks have for each other. A sender so needs
// nothing but the awaits of its peer to know where to put.
//
// A flag at stage 1 says "all that I give is in the slot". The flag of the rank that talks at stage
// s > 1 says "what I awaited in the first s - 1 transfers is in the slot".
namespace allrail::schedule {
namespace {

/// The bytes of blocks between participants.
class Blocks {
 public:
  Blocks(const PairShape& shape, Level level) : shape_(shape), level_(level) {}

  int count() const { return level_ == Level::Smp ? shape_.map.nodes() : shape_.map.ranks(); }
  std::vector<int> ranks(int participant) const {
    return level_ == Level::Smp ? shape_.map.ranks_of[participant] : std::vector<int>{participant};
  }
  std::uint64_t bytes(const PairBlock& block) const {
    std::uint64_t sum = 0;
    for_pairs(block, [&](int, int, std::uint64_t bytes) { sum += bytes; });
    return sum;
  }
  std::uint64_t region_bytes(const PairTransfer& transfer) const {
    return kHeaderBytes + payload(transfer);
  }
  std::uint64_t padded(const PairTransfer& transfer) const {
    return (region_bytes(transfer) + kHeaderBytes - 1) / kHeaderBytes * kHeaderBytes;
  }
  /// visit(from, to, bytes) for the pairs of ranks of a block, in the order of its memory.
  template <class Visit>
  void for_pairs(const PairBlock& block, const Visit& visit) const {
    for (const int to : ranks(block.to)) {
      for (const int from : ranks(block.from)) visit(from, to, shape_.bytes(from, to));
    }
  }

 private:
  std::uint64_t payload(const PairTransfer& transfer) const {
    std::uint64_t sum = 0;
    for (const PairBlock& block : transfer.blocks) sum += bytes(block);
    return sum;
  }

  const PairShape& shape_;
  const Level level_;
};

/// The puts, or the awaits, of all rounds, one after the other.
std::vector<const PairTransfer*> transfers_of(const PairExchange& exchange,
                                              std::vector<PairTransfer> PairRound::*direction) {
  std::vector<const PairTransfer*> transfers;
  for (const PairRound& round : exchange.rounds) {
    for (const PairTransfer& transfer : round.*direction) transfers.push_back(&transfer);
  }
  return transfers;
}

/// Where the regions of a participant lie, counted from the start of its part of the slot.
struct Layout {
  std::vector<std::uint64_t> awaited;  // by await
  std::vector<std::uint64_t> sent;     // by put
  std::uint64_t own = 0;
  std::uint64_t end = 0;
};

Layout lay_out(const PairExchange& exchange, const Blocks& blocks, int participant) {
  Layout layout;
  for (const PairTransfer* await : transfers_of(exchange, &PairRound::awaits)) {
    layout.awaited.push_back(layout.end);
    layout.end += blocks.padded(*await);
  }
  for (const PairTransfer* put : transfers_of(exchange, &PairRound::puts)) {
    layout.sent.push_back(layout.end);
    layout.end += blocks.padded(*put);
  }
  layout.own = layout.end;
  layout.end += blocks.padded({participant, {{participant, participant}}});
  return layout;
}

/// Whether the regions of all participants lie alike: their exchanges do by the rules of PairRound,
/// so that it is a matter of sizes.
bool are_alike(const PairShape& shape, Level level) {
  return shape.matrix.empty() &&
         (level == Level::Flat || shape.map.smallest_node == shape.map.largest_node);
}

class PairsLowering {
 public:
  PairsLowering(PairExchangeFunction exchange, const PairShape& shape, Level level, int rank)
      : make_exchange_(exchange),
        shape_(shape),
        level_(level),
        rank_(rank),
        me_(level == Level::Smp ? shape.map.node_of[rank] : rank),
        blocks_(shape, level),
        members_(blocks_.ranks(me_)),
        talks_(members_.front() == rank),
        exchange_(exchange(blocks_.count(), me_, shape.ports)),
        awaits_(transfers_of(exchange_, &PairRound::awaits)),
        part_bytes_(
            level == Level::Smp || shape.without_places ? 0 : largest_part(exchange, shape, level)),
        layout_(lay_out(exchange_, blocks_, me_)),
        steps_(schedule_) {}

  static std::uint64_t largest_part(PairExchangeFunction exchange, const PairShape& shape,
                                    Level level) {
    const Blocks blocks(shape, level);
    std::uint64_t largest = 0;
    const int unlike = are_alike(shape, level) ? 1 : blocks.count();
    for (int participant = 0; participant < unlike; ++participant) {
      const auto one = exchange(blocks.count(), participant, shape.ports);
      largest = std::max(largest, lay_out(one, blocks, participant).end);
    }
    return largest;
  }

  Schedule run() {
    give();
    if (talks_) {
      talk();
    } else {
      keep();
      take_own();
    }
    take_arrived(arrivals());
    schedule_.slot_bytes = level_ == Level::Smp
                               ? layout_.end
                               : part_bytes_ * static_cast<std::uint64_t>(
                                                   shape_.map.node_size(shape_.map.node_of[rank_]));
    schedule_.stages = alone() ? 0 : static_cast<std::uint32_t>(arrivals()) + 1;
    schedule_.rounds = static_cast<int>(exchange_.rounds.size());
    return std::move(schedule_);
  }

 private:
  bool alone() const { return members_.size() == 1; }
  std::size_t arrivals() const { return layout_.awaited.size(); }
  std::uint64_t part(int rank) const {
    return part_bytes_ * static_cast<std::uint64_t>(shape_.map.local_rank_of[rank]);
  }
  std::uint64_t my_part() const { return part(members_.front()); }
  int talking_rank(int participant) const { return blocks_.ranks(participant).front(); }

  /// My bytes go into the regions that they leave with.
  void give() {
    std::size_t number = 0;
    for (const PairTransfer* put : transfers_of(exchange_, &PairRound::puts)) {
      std::uint64_t place = my_part() + layout_.sent[number++] + kHeaderBytes;
      for (const PairBlock& block : put->blocks) {
        if (block.from == me_) give_block(block, place);
        place += blocks_.bytes(block);
      }
    }
    if (alone()) return;
    give_block({me_, me_}, my_part() + layout_.own + kHeaderBytes);
    steps_.publish(1);
  }

  void give_block(const PairBlock& block, std::uint64_t place) {
    blocks_.for_pairs(block, [&](int from, int to, std::uint64_t bytes) {
      if (from == rank_ && to != rank_) {
        steps_.copy(Memory::Send, shape_.send_offsets[to], Memory::Slot, place, bytes);
      }
      place += bytes;
    });
  }

  void keep() {
    steps_.copy(Memory::Send, shape_.send_offsets[rank_], Memory::Receive,
                shape_.receive_offsets[rank_], shape_.bytes(rank_, rank_));
  }

  void await_members() {
    for (const int member : members_) {
      if (member != rank_) steps_.await_local(shape_.map.local_rank_of[member], 1);
    }
  }

  /// What the other ranks of my participant have for me.
  void take_own() {
    if (alone()) return;
    if (!awaited_members_) await_members();
    awaited_members_ = true;
    take_block({me_, me_}, my_part() + layout_.own + kHeaderBytes);
  }

  void take_block(const PairBlock& block, std::uint64_t place) {
    blocks_.for_pairs(block, [&](int from, int to, std::uint64_t bytes) {
      if (to == rank_ && from != rank_) {
        steps_.copy(Memory::Slot, place, Memory::Receive, shape_.receive_offsets[from], bytes);
      }
      place += bytes;
    });
  }

  void talk() {
    if (!layout_.sent.empty()) {
      await_members();
      awaited_members_ = true;
    }
    std::size_t arrived = 0;
    std::size_t sent = 0;
    bool kept = false;
    for (std::size_t r = 0; r < exchange_.rounds.size(); ++r) {
      const PairRound& round = exchange_.rounds[r];
      steps_.enter_round(static_cast<int>(r));
      for (std::size_t port = 0; port < round.puts.size(); ++port) {
        put(port, sent++, round.puts[port]);
      }
      // While these puts fly, what is already here goes to its place.
      if (!kept) {
        keep();
        take_own();
        kept = true;
      }
      take_arrived(arrived);
      for (std::size_t port = 0; port < round.awaits.size(); ++port) {
        await(port, round.awaits[port], layout_.awaited[arrived++]);
        if (!alone()) steps_.publish(static_cast<std::uint32_t>(arrived) + 1);
      }
    }
    if (!kept) {
      keep();
      take_own();
    }
  }

  /// Blocks of others are packed behind my own into one region.
  void put(std::size_t port, std::size_t number, const PairTransfer& transfer) {
    const std::uint64_t region = my_part() + layout_.sent[number];
    std::uint64_t place = region + kHeaderBytes;
    for (const PairBlock& block : transfer.blocks) {
      const std::uint64_t bytes = blocks_.bytes(block);
      if (block.from != me_) {
        steps_.copy(Memory::Slot, here_.at({block.from, block.to}), Memory::Slot, place, bytes);
      }
      place += bytes;
    }
    steps_.stamp(region);
    const int peer = talking_rank(transfer.peer);
    steps_.put(port, peer, Memory::Slot, region, Memory::Slot,
               part(peer) + place_at(transfer.peer, number), blocks_.region_bytes(transfer));
  }

  /// Where the peer awaits my put `number`: it is its await `number`.
  std::uint64_t place_at(int peer, std::size_t number) const {
    if (shape_.without_places) return 0;
    if (are_alike(shape_, level_)) return layout_.awaited[number];
    const PairExchange theirs = make_exchange_(blocks_.count(), peer, shape_.ports);
    const auto awaits = transfers_of(theirs, &PairRound::awaits);
    if (number >= awaits.size() || awaits[number]->peer != me_) {
      throw std::invalid_argument("an exchange puts to a participant that does not await it");
    }
    std::uint64_t place = 0;
    for (std::size_t before = 0; before < number; ++before) {
      place += blocks_.padded(*awaits[before]);
    }
    return place;
  }

  void await(std::size_t port, const PairTransfer& transfer, std::uint64_t offset) {
    const std::uint64_t region = my_part() + offset;
    steps_.await(port, talking_rank(transfer.peer), Memory::Slot, region, region,
                 blocks_.region_bytes(transfer));
    schedule_.header_offsets.push_back(region);
    std::uint64_t place = region + kHeaderBytes;
    for (const PairBlock& block : transfer.blocks) {
      here_[{block.from, block.to}] = place;
      place += blocks_.bytes(block);
    }
  }

  /// What the first `arrived` transfers brought for my participant, unless it was taken before.
  void take_arrived(std::size_t arrived) {
    for (; taken_ < arrived; ++taken_) take_transfer(taken_, *awaits_[taken_]);
  }

  void take_transfer(std::size_t number, const PairTransfer& transfer) {
    std::uint64_t place = my_part() + layout_.awaited[number] + kHeaderBytes;
    bool awaited = talks_;
    for (const PairBlock& block : transfer.blocks) {
      if (block.to == me_) {
        if (!awaited) {
          const int talking = shape_.map.local_rank_of[members_.front()];
          steps_.await_local(talking, static_cast<std::uint32_t>(number) + 2);
        }
        awaited = true;
        take_block(block, place);
      }
      place += blocks_.bytes(block);
    }
  }

  const PairExchangeFunction make_exchange_;
  const PairShape& shape_;
  const Level level_;
  const int rank_;
  const int me_;
  const Blocks blocks_;
  const std::vector<int> members_;  // the ranks of my participant
  const bool talks_;
  const PairExchange exchange_;
  const std::vector<const PairTransfer*> awaits_;
  const std::uint64_t part_bytes_;
  const Layout layout_;
  bool awaited_members_ = false;
  std::size_t taken_ = 0;                              // transfers
  std::map<std::pair<int, int>, std::uint64_t> here_;  // slot offset of blocks that have arrived
  Schedule schedule_;
  StepList steps_;
};

void check(const PairShape& shape, int rank) {
  const std::size_t ranks = shape.map.node_of.size();
  if (rank < 0 || rank >= shape.map.ranks() || shape.ports < 1 || shape.ports > kLargestPorts ||
      (!shape.matrix.empty() && shape.matrix.size() != ranks * ranks) ||
      shape.send_offsets.size() != ranks || shape.receive_offsets.size() != ranks) {
    throw std::invalid_argument("an alltoall of " + std::to_string(ranks) +
                                " ranks has a rank, ports, sizes or offsets that do not fit to it");
  }
}

}  // namespace

Schedule lower_pairs(PairExchangeFunction exchange, const PairShape& shape, Level level, int rank) {
  check(shape, rank);
  check_level(level);
  return PairsLowering(exchange, shape, level, rank).run();
}

std::uint64_t pairs_slot_bytes(PairExchangeFunction exchange, const PairShape& shape, Level level) {
  const std::uint64_t part = PairsLowering::largest_part(exchange, shape, level);
  if (level == Level::Smp) return part;
  return part * static_cast<std::uint64_t>(shape.map.largest_node);
}

}  // namespace allrail::schedule
