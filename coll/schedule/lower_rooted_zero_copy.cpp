// Blocks of a gather or a scatter straight between user buffers.
//
// Every block goes from where its owner has it to where it is wanted, in the one put of a direct
// algorithm. Nodes have one rank each, so nothing goes through a slot.
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "coll/schedule/rooted.hpp"
#include "coll/schedule/step_list.hpp"

namespace allrail::schedule {
namespace {

class StraightRooted {
 public:
  StraightRooted(const Shape& shape, Level level, int root, int rank, Direction direction)
      : shape_(shape),
        level_(level),
        root_(root),
        rank_(rank),
        gathers_(direction == Direction::ToRoot),
        order_(order_from(participant_of(shape, level, root), participants(shape, level))),
        steps_(schedule_) {}

  Schedule run(ExchangeFunction exchange) {
    const int place = place_of(order_, participant_of(shape_, level_, rank_));
    const Exchange rounds = exchange(participants(shape_, level_), place, shape_.ports);
    if (rank_ == root_) keep();
    for (std::size_t number = 0; number < rounds.rounds.size(); ++number) {
      const Round& round = rounds.rounds[number];
      steps_.enter_round(static_cast<int>(number));
      for (std::size_t i = 0; i < round.puts.size(); ++i) put(round.puts[i], i);
      for (std::size_t i = 0; i < round.awaits.size(); ++i) await(round.awaits[i], i);
    }
    schedule_.rounds = static_cast<int>(rounds.rounds.size());
    return std::move(schedule_);
  }

 private:
  std::uint64_t at_root(int rank) const {
    return shape_.receive_offsets[static_cast<std::size_t>(rank)];
  }
  std::uint64_t bytes_of(int rank) const { return shape_.bytes[static_cast<std::size_t>(rank)]; }
  int rank_at(int place) const {
    return ranks_of(shape_, level_, order_[static_cast<std::size_t>(place)]).front();
  }

  /// Whose block it is: that of its end that is not the root.
  int owner_of(const Transfer& transfer) const {
    const int owner = rank_at(transfer.first);
    const int peer = rank_at(transfer.peer);
    if (transfer.count != 1 || (owner != rank_ && owner != peer)) {
      throw std::invalid_argument("blocks that others send on have no place in user memory");
    }
    return owner;
  }

  void keep() {
    const std::uint64_t offset = at_root(root_);
    steps_.copy(Memory::Send, gathers_ ? 0 : offset, Memory::Receive, gathers_ ? offset : 0,
                bytes_of(root_));
  }

  void put(const Transfer& transfer, std::size_t place) {
    const std::uint64_t offset = at_root(owner_of(transfer));
    steps_.put(port_of(transfer, place), rank_at(transfer.peer), Memory::Send,
               gathers_ ? 0 : offset, Memory::Receive, gathers_ ? offset : 0,
               bytes_of(owner_of(transfer)));
  }

  void await(const Transfer& transfer, std::size_t place) {
    steps_.await(port_of(transfer, place), rank_at(transfer.peer), Memory::Receive, 0,
                 gathers_ ? at_root(owner_of(transfer)) : 0, bytes_of(owner_of(transfer)));
  }

  const Shape& shape_;
  const Level level_;
  const int root_;
  const int rank_;
  const bool gathers_;
  const std::vector<int> order_;
  Schedule schedule_;
  StepList steps_;
};

}  // namespace

bool rooted_goes_straight(const RootedAlgorithm& algorithm, const Shape& shape,
                          std::uint64_t threshold_bytes) {
  const bool is_uniform = std::ranges::all_of(
      shape.bytes, [&shape](std::uint64_t bytes) { return bytes == shape.bytes.front(); });
  return algorithm.zero_copy && is_uniform && shape.map.nodes() > 1 &&
         shape.map.largest_node == 1 && shape.bytes.front() >= threshold_bytes;
}

Schedule rooted_zero_copy_schedule(const RootedAlgorithm& algorithm, const Shape& shape, int root,
                                   int rank, Direction direction) {
  check_shape(shape, rank);
  if (shape.map.largest_node > 1) {
    throw std::invalid_argument("blocks go straight only where every node has one rank");
  }
  return StraightRooted(shape, algorithm.level, root, rank, direction).run(algorithm.exchange);
}

}  // namespace allrail::schedule
