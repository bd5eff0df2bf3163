#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include "coll/schedule/contents.hpp"
#include "coll/schedule/lower.hpp"
#include "coll/schedule/regions.hpp"
#include "coll/schedule/step_list.hpp"

// A flag at stage 1 says "what I give is in the slot". The flag of the rank that talks at stage
// s > 1 says "what I awaited in the first s - 1 transfers is in the slot", so that the others copy
// out while later transfers are in flight.
namespace allrail::schedule {
namespace {

class ContentsLowering {
 public:
  ContentsLowering(const Exchange& exchange, const Contents& contents, const Shape& shape, int rank)
      : exchange_(exchange),
        contents_(contents),
        shape_(shape),
        rank_(rank),
        members_(ranks_of(shape, contents.level, participant_of(shape, contents.level, rank))),
        talker_(
            talking_rank_of(shape, contents.level, participant_of(shape, contents.level, rank))),
        talks_(talker_ == rank),
        regions_(contents.region_bytes, Placement::Absolute),
        arrival_of_(contents.region_bytes.size(), kNever),
        steps_(schedule_) {
    check_rounds(exchange);
    std::size_t arrival = 0;
    for (const Round& round : exchange.rounds) {
      for (const Transfer& await : round.awaits) {
        for (int i = 0; i < await.count; ++i) arrival_of_[region_of(await, i)] = arrival;
        ++arrival;
      }
    }
    arrivals_ = arrival;
    to_give_.resize(contents.region_bytes.size());
    if (goes_put_by_put()) {
      for (const int held : contents.held) to_give_[static_cast<std::size_t>(held)] = true;
    }
    taken_ = contents.taken;
    std::ranges::stable_sort(taken_, {}, [this](const Part& part) { return place_in_time(part); });
  }

  Schedule run() {
    if (!goes_put_by_put()) give();
    if (talks_) {
      talk();
    } else {
      keep();
    }
    take(arrivals_ + 1);
    schedule_.slot_bytes = contents_slot_bytes(
        contents_.region_bytes, contents_.level,
        contents_.level == Level::Smp
            ? 1
            : shape_.map.node_size(shape_.map.node_of[static_cast<std::size_t>(rank_)]));
    schedule_.stages = alone() ? 0 : static_cast<std::uint32_t>(arrivals_) + 1;
    schedule_.rounds = static_cast<int>(exchange_.rounds.size());
    return std::move(schedule_);
  }

 private:
  static constexpr std::size_t kNever = SIZE_MAX;

  bool alone() const { return members_.size() == 1; }
  /// Nobody else reads what I give, waits for what arrives or shares my rails: every put can leave
  /// before the next one is copied.
  bool goes_put_by_put() const { return shape_.alone_on_node(rank_); }
  std::size_t region_of(const Transfer& transfer, int i) const {
    return static_cast<std::size_t>(transfer.first + i) % contents_.region_bytes.size();
  }
  /// 0 for what is here from the start, else the number of the transfer that brings it, from 1.
  std::size_t place_in_time(const Part& part) const {
    const std::size_t arrival = arrival_of_[static_cast<std::size_t>(part.region)];
    return arrival == kNever ? 0 : arrival + 1;
  }
  /// Where a region starts in the slot of the participant whose talking rank is `owner`.
  std::uint64_t region(int owner, int number) const {
    const std::uint64_t part =
        contents_.level == Level::Smp
            ? 0
            : regions_.total_bytes() *
                  static_cast<std::uint64_t>(
                      shape_.map.local_rank_of[static_cast<std::size_t>(owner)]);
    return part + regions_.offset(0, number);
  }
  int talking_rank(int place) const {
    return talking_rank_of(shape_, contents_.level,
                           contents_.order[static_cast<std::size_t>(place)]);
  }
  int local(int rank) const { return shape_.map.local_rank_of[static_cast<std::size_t>(rank)]; }

  void give() {
    bool gave = false;
    for (const Part& part : contents_.given) {
      if (part.rank != rank_) continue;
      gave = true;
      give(part);
    }
    if (gave && !alone()) steps_.publish(1);
  }

  void give(const Part& part) {
    steps_.copy(Memory::Send, part.user_offset, Memory::Slot,
                region(talker_, part.region) + kHeaderBytes + part.region_offset, part.bytes);
  }

  /// What I hold of a region, where that is not there yet.
  void give_region(std::size_t number) {
    if (!to_give_[number]) return;
    to_give_[number] = false;
    const auto region_number = static_cast<int>(number);
    auto part = std::ranges::lower_bound(contents_.given, region_number, {}, &Part::region);
    for (; part != contents_.given.end() && part->region == region_number; ++part) give(*part);
    steps_.stamp(region(rank_, region_number));
  }

  void keep() {
    if (contents_.keeps) {
      steps_.copy(Memory::Send, contents_.kept_from, Memory::Receive, contents_.kept_to,
                  contents_.kept_bytes);
    }
  }

  void talk() {
    const bool puts = std::ranges::any_of(exchange_.rounds,
                                          [](const Round& round) { return !round.puts.empty(); });
    if (puts && !goes_put_by_put()) {
      for (const Part& part : contents_.given) await_giver(part);
      for (const int held : contents_.held) steps_.stamp(region(rank_, held));
    }
    std::uint32_t stage = 1;
    std::size_t arrived = 0;
    bool kept = false;
    for (int r = 0; r < static_cast<int>(exchange_.rounds.size()); ++r) {
      const Round& round = exchange_.rounds[static_cast<std::size_t>(r)];
      steps_.enter_round(r);
      for (std::size_t i = 0; i < round.puts.size(); ++i) {
        put(port_of(round.puts[i], i), round.puts[i]);
      }
      // While these puts fly, what is already here goes to its place, but not before other puts
      // that need not wait either.
      const bool is_last_round = r + 1 == static_cast<int>(exchange_.rounds.size());
      if (round.awaits.empty() && !is_last_round) continue;
      if (!kept) keep();
      kept = true;
      take(arrived + 1);
      for (std::size_t i = 0; i < round.awaits.size(); ++i) {
        await(port_of(round.awaits[i], i), round.awaits[i]);
        ++arrived;
        if (!alone()) steps_.publish(++stage);
        // Nothing follows that it would hold up, and the next one may still be on its way.
        if (goes_put_by_put() && is_last_round) take(arrived + 1);
      }
    }
    if (!kept) keep();
  }

  void put(std::size_t port, const Transfer& transfer) {
    for (int i = 0; i < transfer.count; ++i) give_region(region_of(transfer, i));
    const int peer = talking_rank(transfer.peer);
    for (const Transfer& piece : pieces(transfer)) {
      steps_.put(port, peer, Memory::Slot, region(rank_, piece.first), Memory::Slot,
                 region(peer, piece.first), regions_.span_bytes(piece));
    }
  }

  void await(std::size_t port, const Transfer& transfer) {
    for (const Transfer& piece : pieces(transfer)) {
      const std::uint64_t place = region(rank_, piece.first);
      steps_.await(port, talking_rank(transfer.peer), Memory::Slot, place, place,
                   regions_.span_bytes(piece));
      schedule_.header_offsets.push_back(place);
    }
  }

  /// Where a transfer wraps around behind the last region it is cut.
  std::vector<Transfer> pieces(const Transfer& transfer) const {
    return contiguous_pieces(transfer, static_cast<int>(contents_.region_bytes.size()),
                             Placement::Absolute, 0, 0);
  }

  void await_giver(const Part& part) {
    if (part.rank == rank_ || std::ranges::find(awaited_, part.rank) != awaited_.end()) return;
    awaited_.push_back(part.rank);
    steps_.await_local(local(part.rank), 1);
  }

  /// Copies out what is here once `transfers` - 1 transfers have arrived.
  void take(std::size_t transfers) {
    for (; next_taken_ < taken_.size(); ++next_taken_) {
      const Part& part = taken_[next_taken_];
      const std::size_t when = place_in_time(part);
      if (when >= transfers) return;
      if (when == 0) {
        for (const Part& given : contents_.given) {
          if (given.region == part.region && overlap(given, part)) await_giver(given);
        }
      } else if (!talks_ && when > seen_) {
        seen_ = when;
        steps_.await_local(local(talker_), static_cast<std::uint32_t>(when) + 1);
      }
      steps_.copy(Memory::Slot, region(talker_, part.region) + kHeaderBytes + part.region_offset,
                  Memory::Receive, part.user_offset, part.bytes);
    }
  }

  static bool overlap(const Part& a, const Part& b) {
    return a.region_offset < b.region_offset + b.bytes &&
           b.region_offset < a.region_offset + a.bytes;
  }

  const Exchange& exchange_;
  const Contents& contents_;
  const Shape& shape_;
  const int rank_;
  const std::span<const int> members_;  // the ranks of my participant
  const int talker_;                    // the one of them that talks to other participants
  const bool talks_;
  const Regions regions_;
  std::vector<std::size_t> arrival_of_;  // by region
  std::size_t arrivals_ = 0;
  std::vector<Part> taken_;  // in the order of their arrival
  std::size_t next_taken_ = 0;
  std::size_t seen_ = 0;       // of the transfers, by the flag of the rank that talks
  std::vector<int> awaited_;   // ranks that have given
  std::vector<bool> to_give_;  // by region: held, and given with its first put
  Schedule schedule_;
  StepList steps_;
};

}  // namespace

void check_level(Level level) {
  if (level != Level::MultiLeader) return;
  throw std::invalid_argument("only an allgather has all leaders of all nodes for participants");
}

int participant_of(const Shape& shape, Level level, int rank) {
  return level == Level::Smp ? shape.map.node_of[static_cast<std::size_t>(rank)] : rank;
}

std::span<const int> ranks_of(const Shape& shape, Level level, int participant) {
  const auto at = static_cast<std::size_t>(participant);
  if (level == Level::Smp) return shape.map.ranks_of[at];
  // A rank alone, where it stands among those of its node.
  const auto& node = shape.map.ranks_of[static_cast<std::size_t>(shape.map.node_of[at])];
  return std::span(node).subspan(static_cast<std::size_t>(shape.map.local_rank_of[at]), 1);
}

int talking_rank_of(const Shape& shape, Level level, int participant) {
  return level == Level::Smp ? shape.talking_rank(participant) : participant;
}

int participants(const Shape& shape, Level level) {
  return level == Level::Smp ? shape.map.nodes() : shape.ranks();
}

std::vector<int> order_from(int first, int participants) {
  std::vector<int> order;
  order.reserve(static_cast<std::size_t>(participants));
  for (int i = 0; i < participants; ++i) order.push_back((first + i) % participants);
  return order;
}

std::vector<int> ranks_node_by_node(const Shape& shape, int first) {
  const int first_node = shape.map.node_of[static_cast<std::size_t>(first)];
  std::vector<int> order;
  order.reserve(shape.map.node_of.size());
  for (const int node : order_from(first_node, shape.map.nodes())) {
    const int entered = node == first_node ? first : shape.talking_rank(node);
    order.push_back(entered);
    for (const int rank : shape.map.ranks_of[static_cast<std::size_t>(node)]) {
      if (rank != entered) order.push_back(rank);
    }
  }
  return order;
}

int place_of(const std::vector<int>& order, int participant) {
  return static_cast<int>(std::ranges::find(order, participant) - order.begin());
}

Schedule lower_contents(const Exchange& exchange, const Contents& contents, const Shape& shape,
                        int rank) {
  check_shape(shape, rank);
  check_level(contents.level);
  return ContentsLowering(exchange, contents, shape, rank).run();
}

std::uint64_t contents_slot_bytes(const std::vector<std::uint64_t>& region_bytes, Level level,
                                  int members) {
  return Regions(region_bytes, Placement::Absolute).total_bytes() *
         (level == Level::Smp ? 1 : static_cast<std::uint64_t>(members));
}

}  // namespace allrail::schedule
