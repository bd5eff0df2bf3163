// The places of all ranks, and the hosts, ends and addresses of their rails. They lie once per
// node, in its segment: a rank by itself keeps nothing of ranks that it does not talk to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/card.hpp"

namespace allrail {

struct RankRails {
  std::string host;  // as in the card
  std::vector<transport::RailEnd> ends;
  std::vector<std::vector<std::byte>> addresses;  // of the same rails
};

class RailDirectory {
 public:
  RailDirectory() = default;
  /// Reads what write() wrote; `memory` outlives the directory.
  explicit RailDirectory(std::span<const std::byte> memory) : memory_(memory) {}

  /// Room for what the cards say: the same on all ranks.
  static std::uint64_t bytes_for(std::span<const Card> cards);
  /// `memory` has bytes_for() bytes.
  static void write(std::span<const Card> cards, std::span<std::byte> memory);

  /// @throws Error{Internal} for a rank that is not in it.
  RankRails rails_of(int rank) const;
  /// Of so many ranks; empty where the memory is too small for them.
  std::span<const topology::RankPlace> places(int ranks) const;

 private:
  std::span<const std::byte> memory_;
};

}  // namespace allrail
