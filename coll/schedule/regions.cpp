#include "coll/schedule/regions.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "coll/schedule/schedule.hpp"

namespace allrail::schedule {

Regions::Regions(std::vector<std::uint64_t> data_bytes, Placement placement)
    : data_bytes_(std::move(data_bytes)), placement_(placement) {
  starts_.reserve(data_bytes_.size());
  for (const std::uint64_t bytes : data_bytes_) {
    starts_.push_back(total_bytes_);
    total_bytes_ += kHeaderBytes + padded(bytes);
  }
}

std::uint64_t Regions::distance(int from_block, int to_block) const {
  const std::uint64_t from = starts_[from_block];
  const std::uint64_t to = starts_[to_block];
  return to >= from ? to - from : to + total_bytes_ - from;
}

std::uint64_t Regions::offset(int owner, int block) const {
  return placement_ == Placement::Absolute ? starts_[block] : distance(owner, block);
}

std::uint64_t Regions::span_bytes(const Transfer& piece) const {
  const int last = (piece.first + piece.count - 1) % static_cast<int>(data_bytes_.size());
  return distance(piece.first, last) + kHeaderBytes + data_bytes_[last];
}

void check_rounds(const Exchange& exchange) {
  if (exchange.rounds.size() > std::numeric_limits<std::uint16_t>::max()) {
    throw std::invalid_argument("an exchange of " + std::to_string(exchange.rounds.size()) +
                                " rounds is too long for a schedule; choose another algorithm");
  }
}

std::vector<Transfer> contiguous_pieces(const Transfer& transfer, int participants,
                                        Placement placement, int sender, int receiver) {
  // Memory wraps around before block 0, or in relative placement before the participant's own
  // block.
  const int sender_wrap = placement == Placement::Absolute ? 0 : sender;
  const int receiver_wrap = placement == Placement::Absolute ? 0 : receiver;
  const auto distance_to = [&](int wrap) {
    return (wrap - transfer.first + participants) % participants;
  };
  std::vector<Transfer> pieces;
  int done = 0;
  for (const int cut :
       {std::min(distance_to(sender_wrap), distance_to(receiver_wrap)),
        std::max(distance_to(sender_wrap), distance_to(receiver_wrap)), transfer.count}) {
    const int end = std::min(cut, transfer.count);
    if (end > done) {
      pieces.push_back({transfer.peer, (transfer.first + done) % participants, end - done});
      done = end;
    }
  }
  return pieces;
}

}  // namespace allrail::schedule
