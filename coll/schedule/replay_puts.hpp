#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "coll/schedule/replay_bytes.hpp"
#include "coll/schedule/replay_ranks.hpp"

// The puts of a replay: each flies in pieces, which land in any order while ranks go on.
namespace allrail::schedule {

/// A small seeded generator (splitmix64), so that a seed means the same run with every library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t bound) {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
    return (mixed ^ (mixed >> 31U)) % bound;
  }

 private:
  std::uint64_t state_;
};

class ReplayPuts {
 public:
  ReplayPuts(std::span<const ReplayCall> calls, ReplayBytes& bytes, ReplayRanks& ranks,
             Findings& findings, Random& random);

  /// `rank` runs its Put in `call`.
  void post(int call, int rank, const Step& step);
  bool any_in_flight() const { return !pieces_.empty(); }
  /// One of the pieces in flight, any.
  void deliver_a_piece();

  /// Of the first put of the pair in the call that the receiver has not taken.
  bool next_has_landed(int call, int sender, int receiver) const;
  void take_next(int call, int sender, int receiver);

 private:
  struct Put {
    int call;
    int sender;
    Step step;
    std::vector<Origin> posted;  // what the source held when the put was posted
    int pieces_left;
  };

  struct Piece {
    int put;
    std::uint64_t offset;
    std::uint64_t bytes;
  };

  struct Pair {
    std::vector<int> puts;  // posted by the sender, in order
    std::size_t awaited = 0;
  };

  std::size_t place_of(int sender, int receiver) const {
    return static_cast<std::size_t>(sender) * ranks_.size() + static_cast<std::size_t>(receiver);
  }

  ReplayBytes& bytes_;
  ReplayRanks& ranks_;
  Findings& findings_;
  Random& random_;
  std::vector<std::vector<Pair>> pairs_;  // by call, by sender * ranks + receiver
  std::vector<Put> puts_;
  std::vector<Piece> pieces_;
};

}  // namespace allrail::schedule
