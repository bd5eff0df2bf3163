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
  /// Whether some rail of the set (a bit for each) is slower than another.
  bool are_unlike(unsigned rails) const;
  struct Choice {
    int rail = 0;
    bool is_trial = false;  // the rail whose turn it is, although another would be done earlier
  };
  /// The rail whose turn it is, or another of the set that is done earlier with what it has and so
  /// much more. At the beginning of a whole turn a rail that is passed over is tried now and then:
  /// it may have become faster, which is seen only if it gets no less than the others for a while.
  Choice choose(int in_turn, unsigned rails, std::uint64_t bytes, bool begins);
  /// The link is another one from now on.
  void forget(int rail) { queues_[static_cast<std::size_t>(rail)] = {}; }
  /// 0: not known, or nothing moves.
  double bytes_per_ns(int rail) const { return queues_[static_cast<std::size_t>(rail)].rate; }

 private:
  static constexpr std::size_t kSamples = 8;

  struct Queue {
    std::uint64_t left_bytes = 0;
    std::uint64_t gone_bytes = 0;  // at the last look that told of the rate
    bool was_empty = true;         // at that look, or one since
    // Of the last looks; before there are so many nothing is known. Processes that did not run
    // mostly make a rail look slow, so its rate is the highest of them.
    std::array<double, kSamples> samples{};
    std::size_t sample_count = 0;
    double rate = 0;
    unsigned passed_over = 0;  // turns
  };
  double highest_rate(unsigned rails) const;

  std::array<Queue, kMaxRails> queues_{};
  std::int64_t rated_at_ns_ = 0;
};

}  // namespace allrail::transport
