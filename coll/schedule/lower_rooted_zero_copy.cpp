// Blocks of a gather or a scatter straight between user buffers.
//
// Every block of another node than the root's goes from where its owner has it to where it is
// wanted, in the one put of a direct algorithm: owner and root talk to each other, whoever talks
// for their nodes. On the root's own node whoever has blocks copies them into the slot before all
// else, and flag stage 1 says that they are there.
#include <algorithm>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "coll/schedule/rooted.hpp"
#include "coll/schedule/step_list.hpp"

namespace allrail::schedule {
namespace {

constexpr std::uint32_t kNeighbourHasGiven = 1;

bool is_uniform(const Shape& shape) {
  return std::ranges::adjacent_find(shape.bytes, std::ranges::not_equal_to()) == shape.bytes.end();
}

class StraightRooted {
 public:
  StraightRooted(const Shape& shape, Level level, int root, int rank, Direction direction)
      : shape_(shape),
        level_(level),
        root_(root),
        rank_(rank),
        gathers_(direction == Direction::ToRoot),
        is_near_(node_of(rank) == node_of(root)),
        order_(order_from(participant_of(shape, level, root), participants(shape, level))),
        steps_(schedule_) {}

  Schedule run(ExchangeFunction exchange) {
    const int place = place_of(order_, participant_of(shape_, level_, rank_));
    const Exchange rounds = exchange(participants(shape_, level_), place, shape_.ports);
    give();
    if (rank_ == root_) keep();
    if (rank_ == root_ || !is_near_) talk(rounds);
    take();
    schedule_.rounds = static_cast<int>(rounds.rounds.size());
    if (is_near_ && !shape_.alone_on_node(rank_)) {
      const int ranks = shape_.map.node_size(node_of(root_));
      schedule_.slot_bytes = rooted_straight_slot_bytes(ranks, block_bytes());
      schedule_.stages = kNeighbourHasGiven;
    }
    return std::move(schedule_);
  }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  int node_of(int rank) const { return shape_.map.node_of[at(rank)]; }
  std::uint64_t at_root(int rank) const { return shape_.receive_offsets[at(rank)]; }
  std::uint64_t block_bytes() const { return shape_.bytes.front(); }

  /// Whose blocks they are: those of its end that is not the root's.
  int owner_of(const Transfer& transfer) const {
    const int owner = order_[at(transfer.first)];
    const int peer = order_[at(transfer.peer)];
    if (transfer.count != 1 || (owner != participant_of(shape_, level_, rank_) && owner != peer)) {
      throw std::invalid_argument("blocks that others send on have no place in user memory");
    }
    return owner;
  }

  void talk(const Exchange& exchange) {
    for (std::size_t number = 0; number < exchange.rounds.size(); ++number) {
      const Round& round = exchange.rounds[number];
      steps_.enter_round(static_cast<int>(number));
      for (std::size_t i = 0; i < round.puts.size(); ++i) put(round.puts[i], i);
      // What lies here already fills the time until the first block arrives.
      if (!round.awaits.empty()) take();
      for (std::size_t i = 0; i < round.awaits.size(); ++i) await(round.awaits[i], i);
    }
  }

  void keep() {
    const std::uint64_t offset = at_root(root_);
    steps_.copy(Memory::Send, gathers_ ? 0 : offset, Memory::Receive, gathers_ ? offset : 0,
                block_bytes());
  }

  /// The ranks beside the root on its node.
  std::vector<int> neighbours() const {
    std::vector<int> found;
    for (const int rank : shape_.map.ranks_of[at(node_of(root_))]) {
      if (rank != root_) found.push_back(rank);
    }
    return found;
  }
  /// Where the block of a neighbour of the root lies in the slot.
  std::uint64_t place_in_slot(int rank) const {
    const int local = shape_.map.local_rank_of[at(rank)];
    const int root_local = shape_.map.local_rank_of[at(root_)];
    return at(local > root_local ? local - 1 : local) * padded(block_bytes());
  }

  void give() {
    if (!is_near_ || (gathers_ == (rank_ == root_))) return;
    for (const int owner : neighbours()) {
      if (rank_ != owner && rank_ != root_) continue;
      steps_.copy(Memory::Send, gathers_ ? 0 : at_root(owner), Memory::Slot, place_in_slot(owner),
                  block_bytes());
    }
    if (!shape_.alone_on_node(rank_)) steps_.publish(kNeighbourHasGiven);
  }

  void take() {
    if (!is_near_ || gathers_ != (rank_ == root_) || std::exchange(has_taken_, true)) return;
    for (const int owner : neighbours()) {
      if (rank_ != owner && rank_ != root_) continue;
      const int giver = gathers_ ? owner : root_;
      steps_.await_local(shape_.map.local_rank_of[at(giver)], kNeighbourHasGiven);
      steps_.copy(Memory::Slot, place_in_slot(owner), Memory::Receive,
                  gathers_ ? at_root(owner) : 0, block_bytes());
    }
  }

  /// The ranks of another node whose blocks travel in a transfer: on their side that is this rank.
  std::vector<int> owners(const Transfer& transfer) const {
    const int participant = owner_of(transfer);
    if (rank_ != root_) return {rank_};
    if (level_ != Level::Smp) {
      if (node_of(participant) == node_of(root_)) return {};
      return {participant};
    }
    return shape_.map.ranks_of[at(participant)];
  }
  /// Every rank of a node has a port of its own: at the root, too.
  std::size_t port(const Transfer& transfer, std::size_t place, int owner) const {
    return port_of(transfer, place) * at(shape_.map.largest_node) +
           at(shape_.map.local_rank_of[at(owner)]);
  }

  void put(const Transfer& transfer, std::size_t place) {
    for (const int owner : owners(transfer)) {
      const std::uint64_t offset = at_root(owner);
      steps_.put(port(transfer, place, owner), gathers_ ? root_ : owner, Memory::Send,
                 gathers_ ? 0 : offset, Memory::Receive, gathers_ ? offset : 0, block_bytes());
    }
  }

  void await(const Transfer& transfer, std::size_t place) {
    for (const int owner : owners(transfer)) {
      steps_.await(port(transfer, place, owner), gathers_ ? owner : root_, Memory::Receive, 0,
                   gathers_ ? at_root(owner) : 0, block_bytes());
    }
  }

  const Shape& shape_;
  const Level level_;
  const int root_;
  const int rank_;
  const bool gathers_;
  const bool is_near_;  // on the root's node
  const std::vector<int> order_;
  bool has_taken_ = false;
  Schedule schedule_;
  StepList steps_;
};

}  // namespace

bool rooted_goes_straight(const RootedAlgorithm& algorithm, const Shape& shape,
                          std::uint64_t threshold_bytes) {
  return algorithm.zero_copy && is_uniform(shape) && shape.map.nodes() > 1 &&
         ranks_may_talk(shape.map) && shape.bytes.front() >= threshold_bytes;
}

Schedule rooted_zero_copy_schedule(const RootedAlgorithm& algorithm, const Shape& shape, int root,
                                   int rank, Direction direction) {
  check_shape(shape, rank);
  if (!is_uniform(shape)) {
    throw std::invalid_argument("blocks go straight only where all are of one size");
  }
  return StraightRooted(shape, algorithm.level, root, rank, direction).run(algorithm.exchange);
}

std::uint64_t rooted_straight_slot_bytes(int node_size, std::uint64_t block_bytes) {
  return static_cast<std::uint64_t>(node_size - 1) * padded(block_bytes);
}

}  // namespace allrail::schedule
