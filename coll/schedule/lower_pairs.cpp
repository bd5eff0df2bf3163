#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "coll/schedule/pair_regions.hpp"
#include "coll/schedule/pairs.hpp"
#include "coll/schedule/step_list.hpp"

// A flag at stage 1 says "all that I give is in the slot". The flag of a rank that leads a lane, at
// `s` stages beyond where the lane begins, says "what I awaited in its first s transfers is in the
// slot".
namespace allrail::schedule {
namespace {

/// A lane of my participant.
struct PairLane {
  PairLayout layout;
  std::uint64_t part = 0;         // where its part of the slot begins
  int leader = 0;                 // the local rank that talks
  std::uint32_t first_stage = 1;  // of the leader's flag, before anything has arrived
  std::size_t taken = 0;          // transfers
};

class PairsLowering {
 public:
  PairsLowering(PairExchangeFunction exchange, const PairShape& shape, Level level, int rank)
      : make_exchange_(exchange),
        shape_(shape),
        level_(level),
        rank_(rank),
        local_(shape.map.local_rank_of[rank]),
        me_(level == Level::Smp ? shape.map.node_of[rank] : rank),
        blocks_(shape, level),
        members_(blocks_.ranks(me_)),
        exchange_(exchange(blocks_.count(), me_, shape.ports)),
        awaits_(transfers_of(exchange_, &PairRound::awaits)),
        part_bytes_((level == Level::Smp && shape.lanes() == 1) || shape.without_places
                        ? 0
                        : largest_part(exchange, shape, level)),
        has_given_(members_.size(), false),
        steps_(schedule_) {
    std::vector<std::uint32_t> stages(members_.size(), 1);  // of the flags, so far
    for (int lane = 0; lane < pair_lanes(shape, level); ++lane) {
      PairLane made{lay_out(exchange_, blocks_, me_, lane), part(rank, lane), leader(me_, lane)};
      if (level == Level::Smp) {
        std::uint32_t& stage = stages[static_cast<std::size_t>(made.leader)];
        made.first_stage = stage;
        stage += static_cast<std::uint32_t>(awaits_.size());
        last_stage_ = std::max(last_stage_, stage);
      }
      lanes_.push_back(std::move(made));
    }
  }

  Schedule run() {
    give();
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      if (lanes_[lane].leader == local_) talk(static_cast<int>(lane));
    }
    keep();
    for (std::size_t number = 0; number < awaits_.size(); ++number) {
      for (std::size_t lane = 0; lane < lanes_.size(); ++lane) take_arrived(lane, number + 1);
    }
    const auto led = std::ranges::find(lanes_, local_, &PairLane::leader);
    if (led != lanes_.end()) schedule_.lane = static_cast<int>(led - lanes_.begin());
    schedule_.slot_bytes = slot_bytes();
    schedule_.stages = alone() ? 0 : last_stage_;
    schedule_.rounds = static_cast<int>(exchange_.rounds.size());
    return std::move(schedule_);
  }

 private:
  bool alone() const { return members_.size() == 1; }
  /// Nobody else reads what I give, waits for what arrives or shares my rails: every put can leave
  /// before the next one is copied. In one round only: where the buffers are the same, what arrives
  /// in a round would overwrite what is to be given in the next.
  bool goes_put_by_put() const {
    return shape_.alone_on_node(rank_) && lanes_.size() == 1 && exchange_.rounds.size() == 1;
  }
  int leader(int participant, int lane) const {
    return level_ == Level::Smp ? shape_.leader(participant, lane)
                                : shape_.map.local_rank_of[participant];
  }
  int talking_rank(int participant, int lane) const {
    return level_ == Level::Smp
               ? shape_.map.ranks_of[participant]
                                    [static_cast<std::size_t>(shape_.leader(participant, lane))]
               : participant;
  }
  int lane_of_mine() const { return level_ == Level::Smp ? shape_.lane_of(rank_) : 0; }
  /// Where the participant of `rank` has its part for a lane.
  std::uint64_t part(int rank, int lane) const {
    const int number = level_ == Level::Smp ? lane : shape_.map.local_rank_of[rank];
    return part_bytes_ * static_cast<std::uint64_t>(number);
  }
  std::uint64_t slot_bytes() const {
    if (level_ != Level::Smp) {
      return part_bytes_ *
             static_cast<std::uint64_t>(shape_.map.node_size(shape_.map.node_of[rank_]));
    }
    return lanes_.size() == 1 ? lanes_.front().layout.end : part_bytes_ * lanes_.size();
  }

  /// My bytes go into the regions that they leave with.
  void give() {
    if (goes_put_by_put()) return;
    const int number = lane_of_mine();
    const PairLane& lane = lanes_[static_cast<std::size_t>(number)];
    std::size_t sent = 0;
    for (const PairTransfer* put : transfers_of(exchange_, &PairRound::puts)) {
      std::uint64_t place = lane.part + lane.layout.sent[sent++] + kHeaderBytes;
      for (const PairBlock& block : put->blocks) {
        if (block.from == me_) give_block(block, number, place);
        place += blocks_.bytes(block, number);
      }
    }
    if (alone()) return;
    give_block({me_, me_}, number, lane.part + lane.layout.own + kHeaderBytes);
    steps_.publish(1);
  }

  void give_block(const PairBlock& block, int lane, std::uint64_t place) {
    blocks_.for_pairs(block, lane, [&](int from, int to, std::uint64_t bytes) {
      if (from == rank_ && to != rank_) {
        steps_.copy(Memory::Send, shape_.send_offsets[to], Memory::Slot, place, bytes);
      }
      place += bytes;
    });
  }

  /// What stays in my participant: mine, and what its other ranks have for me.
  void keep() {
    if (has_kept_) return;
    has_kept_ = true;
    steps_.copy(Memory::Send, shape_.send_offsets[rank_], Memory::Receive,
                shape_.receive_offsets[rank_], shape_.bytes(rank_, rank_));
    if (alone()) return;
    await_given(members_);
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      const std::uint64_t own = lanes_[lane].part + lanes_[lane].layout.own;
      take_block({me_, me_}, static_cast<int>(lane), own + kHeaderBytes);
    }
  }

  void await_given(const std::vector<int>& members) {
    for (const int member : members) {
      const int local = shape_.map.local_rank_of[member];
      const auto place = static_cast<std::size_t>(local);
      if (member == rank_ || has_given_[place]) continue;
      has_given_[place] = true;
      steps_.await_local(local, 1);
    }
  }

  void take_block(const PairBlock& block, int lane, std::uint64_t place) {
    blocks_.for_pairs(block, lane, [&](int from, int to, std::uint64_t bytes) {
      if (to == rank_ && from != rank_) {
        steps_.copy(Memory::Slot, place, Memory::Receive, shape_.receive_offsets[from], bytes);
      }
      place += bytes;
    });
  }

  void talk(int number) {
    const PairLane& lane = lanes_[static_cast<std::size_t>(number)];
    if (!lane.layout.sent.empty() && !alone()) await_given(blocks_.givers(me_, number));
    here_.clear();
    std::size_t arrived = 0;
    std::size_t sent = 0;
    for (std::size_t r = 0; r < exchange_.rounds.size(); ++r) {
      const PairRound& round = exchange_.rounds[r];
      steps_.enter_round(static_cast<int>(r));
      for (std::size_t port = 0; port < round.puts.size(); ++port) {
        put(port, sent++, round.puts[port], number);
      }
      // While these puts fly, what is already here goes to its place.
      keep();
      take_arrived(static_cast<std::size_t>(number), arrived);
      for (std::size_t port = 0; port < round.awaits.size(); ++port) {
        await(port, round.awaits[port], number, lane.layout.awaited[arrived++]);
        if (!alone()) steps_.publish(lane.first_stage + static_cast<std::uint32_t>(arrived));
        // Nothing follows that it would hold up, and the next one may still be on its way.
        if (goes_put_by_put()) take_arrived(static_cast<std::size_t>(number), arrived);
      }
    }
  }

  /// Blocks of others are packed behind my own into one region.
  void put(std::size_t port, std::size_t number, const PairTransfer& transfer, int lane) {
    const PairLane& mine = lanes_[static_cast<std::size_t>(lane)];
    const std::uint64_t region = mine.part + mine.layout.sent[number];
    std::uint64_t place = region + kHeaderBytes;
    for (const PairBlock& block : transfer.blocks) {
      const std::uint64_t bytes = blocks_.bytes(block, lane);
      if (block.from != me_) {
        steps_.copy(Memory::Slot, here_.at({block.from, block.to}), Memory::Slot, place, bytes);
      } else if (goes_put_by_put()) {
        give_block(block, lane, place);
      }
      place += bytes;
    }
    steps_.stamp(region);
    const int peer = talking_rank(transfer.peer, lane);
    steps_.put(port, peer, Memory::Slot, region, Memory::Slot,
               part(peer, lane) + place_at(transfer.peer, number, lane),
               blocks_.region_bytes(transfer, lane));
  }

  /// Where the peer awaits my put `number`: it is its await `number`.
  std::uint64_t place_at(int peer, std::size_t number, int lane) const {
    if (shape_.without_places) return 0;
    if (are_alike(shape_, level_)) {
      return lanes_[static_cast<std::size_t>(lane)].layout.awaited[number];
    }
    const PairExchange theirs = make_exchange_(blocks_.count(), peer, shape_.ports);
    const auto awaits = transfers_of(theirs, &PairRound::awaits);
    if (number >= awaits.size() || awaits[number]->peer != me_) {
      throw std::invalid_argument("an exchange puts to a participant that does not await it");
    }
    std::uint64_t place = 0;
    for (std::size_t before = 0; before < number; ++before) {
      place += blocks_.padded(*awaits[before], lane);
    }
    return place;
  }

  void await(std::size_t port, const PairTransfer& transfer, int lane, std::uint64_t offset) {
    const std::uint64_t region = lanes_[static_cast<std::size_t>(lane)].part + offset;
    steps_.await(port, talking_rank(transfer.peer, lane), Memory::Slot, region, region,
                 blocks_.region_bytes(transfer, lane));
    schedule_.header_offsets.push_back(region);
    std::uint64_t place = region + kHeaderBytes;
    for (const PairBlock& block : transfer.blocks) {
      here_[{block.from, block.to}] = place;
      place += blocks_.bytes(block, lane);
    }
  }

  /// What the first `arrived` transfers of a lane brought for my participant, unless it was taken
  /// before.
  void take_arrived(std::size_t lane, std::size_t arrived) {
    std::size_t& taken = lanes_[lane].taken;
    for (; taken < arrived; ++taken) take_transfer(lane, taken, *awaits_[taken]);
  }

  void take_transfer(std::size_t lane, std::size_t number, const PairTransfer& transfer) {
    const PairLane& from = lanes_[lane];
    const int lane_number = static_cast<int>(lane);
    std::uint64_t place = from.part + from.layout.awaited[number] + kHeaderBytes;
    bool awaited = from.leader == local_;
    for (const PairBlock& block : transfer.blocks) {
      if (block.to == me_) {
        if (!awaited) {
          const auto stage = static_cast<std::uint32_t>(number) + 1;
          steps_.await_local(from.leader, from.first_stage + stage);
        }
        awaited = true;
        take_block(block, lane_number, place);
      }
      place += blocks_.bytes(block, lane_number);
    }
  }

  const PairExchangeFunction make_exchange_;
  const PairShape& shape_;
  const Level level_;
  const int rank_;
  const int local_;
  const int me_;
  const PairBlocks blocks_;
  const std::vector<int> members_;  // the ranks of my participant
  const PairExchange exchange_;
  const std::vector<const PairTransfer*> awaits_;
  const std::uint64_t part_bytes_;
  std::vector<bool> has_given_;  // by local rank: seen by its flag
  std::vector<PairLane> lanes_;
  std::uint32_t last_stage_ = 1;
  bool has_kept_ = false;
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
  const std::uint64_t part = largest_part(exchange, shape, level);
  return part *
         static_cast<std::uint64_t>(level == Level::Smp ? shape.lanes() : shape.map.largest_node);
}

}  // namespace allrail::schedule
