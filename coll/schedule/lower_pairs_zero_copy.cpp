// Blocks of pairs straight between user buffers.
//
// Every rank talks to the ranks of other nodes itself. What it has for ranks of its own node it
// copies into the slot before all else, and flag stage 1 says that it is there: those take it from
// there while blocks of other nodes are on their way.
#include <stdexcept>
#include <vector>

#include "coll/schedule/pairs.hpp"
#include "coll/schedule/step_list.hpp"

namespace allrail::schedule {
namespace {

constexpr std::uint32_t kHasGiven = 1;

/// A rank of another node, and through which port of a round one talks to it.
struct Partner {
  int rank;
  std::size_t port;
};

class StraightPairs {
 public:
  StraightPairs(PairExchangeFunction exchange, const PairShape& shape, Level level, int rank)
      : shape_(shape),
        level_(level),
        rank_(rank),
        me_(level == Level::Smp ? node_of(rank) : rank),
        node_ranks_(shape.map.ranks_of[at(node_of(rank))]),
        exchange_(
            exchange(level == Level::Smp ? shape.map.nodes() : shape.ranks(), me_, shape.ports)),
        steps_(schedule_) {}

  Schedule run() {
    give();
    const std::size_t rounds = exchange_.rounds.size();
    for (std::size_t number = 0; number < rounds; ++number) {
      const PairRound& round = exchange_.rounds[number];
      steps_.enter_round(static_cast<int>(number));
      put(round);
      if (number == 0) keep();
      if (number + 1 == rounds) take();
      await(round);
    }
    if (rounds == 0) keep();
    if (rounds == 0) take();
    schedule_.rounds = static_cast<int>(rounds);
    schedule_.slot_bytes =
        straight_slot_bytes(static_cast<int>(node_ranks_.size()), shape_.uniform_bytes);
    schedule_.stages = alone() ? 0 : kHasGiven;
    return std::move(schedule_);
  }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  int node_of(int rank) const { return shape_.map.node_of[at(rank)]; }
  int local(int rank) const { return shape_.map.local_rank_of[at(rank)]; }
  bool alone() const { return node_ranks_.size() == 1; }

  /// Where the block of a rank of my node for another one lies in the slot.
  std::uint64_t place(int from, int to) const {
    const int others = static_cast<int>(node_ranks_.size()) - 1;
    const int number = local(from) * others + local(to) - (local(to) > local(from) ? 1 : 0);
    return static_cast<std::uint64_t>(number) * padded(shape_.uniform_bytes);
  }

  void give() {
    if (alone()) return;
    for (const int peer : node_ranks_) {
      if (peer == rank_) continue;
      steps_.copy(Memory::Send, shape_.send_offsets[at(peer)], Memory::Slot, place(rank_, peer),
                  shape_.uniform_bytes);
    }
    steps_.publish(kHasGiven);
  }

  void keep() {
    steps_.copy(Memory::Send, shape_.send_offsets[at(rank_)], Memory::Receive,
                shape_.receive_offsets[at(rank_)], shape_.uniform_bytes);
  }

  void take() {
    for (const int peer : node_ranks_) {
      if (peer == rank_) continue;
      steps_.await_local(local(peer), kHasGiven);
      steps_.copy(Memory::Slot, place(peer, rank_), Memory::Receive,
                  shape_.receive_offsets[at(peer)], shape_.uniform_bytes);
    }
  }

  /// The ranks of a participant that I put to, or those that put to me: each begins with another
  /// one, so that nobody is sent to by a whole node at once.
  std::vector<Partner> partners(int participant, std::size_t port, bool i_put) const {
    if (level_ != Level::Smp) {
      if (node_of(participant) == node_of(rank_)) return {};
      return {{participant, port}};
    }
    const auto& others = shape_.map.ranks_of[at(participant)];
    const int size = static_cast<int>(i_put ? others.size() : node_ranks_.size());
    std::vector<Partner> found;
    for (int turn = 0; turn < size; ++turn) {
      for (const int other : others) {
        const int sender = local(i_put ? rank_ : other);
        const int receiver = local(i_put ? other : rank_);
        if ((sender + turn) % size != receiver) continue;
        found.push_back({other, port * at(shape_.map.largest_node) + at(turn)});
      }
    }
    return found;
  }

  void put(const PairRound& round) {
    for (std::size_t port = 0; port < round.puts.size(); ++port) {
      const PairTransfer& transfer = round.puts[port];
      if (transfer.blocks.size() != 1 || transfer.blocks.front().from != me_) {
        throw std::invalid_argument("blocks that others send on have no place in user memory");
      }
      for (const Partner& peer : partners(transfer.peer, port, true)) {
        // Places are alike on all ranks, since sizes are: where its block is here, mine is there.
        steps_.put(peer.port, peer.rank, Memory::Send, shape_.send_offsets[at(peer.rank)],
                   Memory::Receive, shape_.receive_offsets[at(rank_)], shape_.uniform_bytes);
      }
    }
  }

  void await(const PairRound& round) {
    for (std::size_t port = 0; port < round.awaits.size(); ++port) {
      for (const Partner& peer : partners(round.awaits[port].peer, port, false)) {
        steps_.await(peer.port, peer.rank, Memory::Receive, 0,
                     shape_.receive_offsets[at(peer.rank)], shape_.uniform_bytes);
      }
    }
  }

  const PairShape& shape_;
  const Level level_;
  const int rank_;
  const int me_;
  const std::vector<int>& node_ranks_;
  const PairExchange exchange_;
  Schedule schedule_;
  StepList steps_;
};

}  // namespace

Schedule lower_pairs_zero_copy(PairExchangeFunction exchange, const PairShape& shape, Level level,
                               int rank) {
  check_level(level);
  if (!shape.matrix.empty()) {
    throw std::invalid_argument("blocks of pairs go straight only where all are of one size");
  }
  return StraightPairs(exchange, shape, level, rank).run();
}

std::uint64_t straight_slot_bytes(int node_size, std::uint64_t block_bytes) {
  return static_cast<std::uint64_t>(node_size) * static_cast<std::uint64_t>(node_size - 1) *
         padded(block_bytes);
}

}  // namespace allrail::schedule
