// What lies in the rails to one peer, and how fast it leaves them.
//
// Looked at now and then by who sends a stream of puts that nobody acknowledges one by one. A rail
// whose queue did not become empty from one look to another has carried what left it as fast as it
// can; one that became empty might have carried more.
#pragma once

#include <array>
#include <cstdint>

#include "transport/rail.hpp"

namespace allrail::transport {

class Queues {
 public:
  using Bytes = std::array<std::uint64_t, kMaxRails>;  // by rail

  /// `posted`: all that each rail was ever given; `left`: what of it lies in its queue.
  void look(const Bytes& posted, const Bytes& left, std::int64_t now_ns);
  /// The rail whose turn it is, or another of those in the set (a bit for each) that is done
  /// earlier with what it has and so much more. A rail that is never done first has a turn now and
  /// then all the same: it may have become faster.
  int choose(int in_turn, unsigned rails, std::uint64_t bytes);
  /// Whether some rail is slower than another.
  bool are_unlike() const;
  /// 0: not known.
  double bytes_per_ns(int rail) const { return queues_[static_cast<std::size_t>(rail)].rate; }

 private:
  static constexpr std::size_t kSamples = 8;

  struct Queue {
    std::uint64_t left_bytes = 0;
    std::uint64_t gone_bytes = 0;  // at the last look that told of the rate
    bool was_empty = true;         // since then
    // Of the last looks; before there are so many nothing is known. Processes that did not run make
    // a rail look slow and never fast, so its rate is the highest of them.
    std::array<double, kSamples> samples{};
    std::size_t sample_count = 0;
    double rate = 0;
  };

  std::array<Queue, kMaxRails> queues_{};
  std::int64_t rated_at_ns_ = 0;
  unsigned passed_over_ = 0;  // turns
};

}  // namespace allrail::transport
