#include "transport/queues.hpp"

#include <algorithm>

namespace allrail::transport {

namespace {

// A kernel acknowledges every other segment, so one (of an MTU of 1500) may be left of what was
// delivered long ago.
constexpr std::uint64_t kEmptyBytes = 1448;
// In less time what left a queue is a matter of when acknowledgements came, and who ran.
constexpr std::int64_t kLeastNs = 200'000;
// Rates that differ by less may be alike.
constexpr double kUnlikeShare = 0.65;
// Turns. A rail that is given nothing is not seen to become faster.
constexpr unsigned kMostPassedOver = 8;
// What an idle rail carried once is believed less with every look that does not show it again.
constexpr double kIdleDecay = 31.0 / 32;

}  // namespace

void Queues::look(const Bytes& posted, const Bytes& left, std::int64_t now_ns) {
  const std::int64_t passed_ns = now_ns - rated_at_ns_;
  const bool is_rated = passed_ns >= kLeastNs;
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    Queue& queue = queues_[i];
    queue.left_bytes = left[i];
    queue.was_empty = queue.was_empty || left[i] <= kEmptyBytes;
    if (!is_rated) continue;
    const std::uint64_t gone_bytes = posted[i] - std::min(left[i], posted[i]);
    const std::uint64_t newly_gone_bytes = gone_bytes - std::min(queue.gone_bytes, gone_bytes);
    const double rate = static_cast<double>(newly_gone_bytes) / static_cast<double>(passed_ns);
    if (rated_at_ns_ != 0 && (!queue.was_empty || rate > queue.rate)) {
      queue.samples[queue.sample_count++ % kSamples] = rate;
    } else {
      for (double& sample : queue.samples) sample *= kIdleDecay;
    }
    if (queue.sample_count >= kSamples) queue.rate = *std::ranges::max_element(queue.samples);
    queue.gone_bytes = gone_bytes;
    queue.was_empty = left[i] <= kEmptyBytes;
  }
  if (is_rated) rated_at_ns_ = now_ns;
}

double Queues::highest_rate(unsigned rails) const {
  double highest = 0;
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    if ((rails >> i & 1U) != 0) highest = std::max(highest, queues_[i].rate);
  }
  return highest;
}

bool Queues::are_unlike(unsigned rails) const {
  const double highest = highest_rate(rails);
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    const double rate = queues_[i].rate;
    if ((rails >> i & 1U) != 0 && rate > 0 && rate < kUnlikeShare * highest) return true;
  }
  return false;
}

Queues::Choice Queues::choose(int in_turn, unsigned rails, std::uint64_t bytes, bool begins) {
  const double highest = highest_rate(rails);
  if (highest <= 0) return {in_turn, false};
  const auto done_after_ns = [&](int rail) {
    const Queue& queue = queues_[static_cast<std::size_t>(rail)];
    const bool is_slow = queue.rate > 0 && queue.rate < kUnlikeShare * highest;
    return static_cast<double>(queue.left_bytes + bytes) / (is_slow ? queue.rate : highest);
  };
  int first = in_turn;
  // To be done a little earlier is not worth that the receiver looks elsewhere.
  double first_ns = done_after_ns(in_turn) - static_cast<double>(bytes) / highest;
  for (int rail = 0; rail < kMaxRails; ++rail) {
    if ((rails >> rail & 1U) == 0 || done_after_ns(rail) >= first_ns) continue;
    first = rail;
    first_ns = done_after_ns(rail);
  }
  if (first == in_turn || !begins) return {first, false};
  const unsigned passed_over = ++queues_[static_cast<std::size_t>(in_turn)].passed_over;
  return passed_over % kMostPassedOver == 0 ? Choice{in_turn, true} : Choice{first, false};
}

}  // namespace allrail::transport
