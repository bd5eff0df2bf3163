#include "lib/expected_counts.hpp"

#include <algorithm>
#include <numeric>

namespace allrail {
namespace {

// Envelopes have whole cache lines. Where few ranks send little, all have room for something: a few
// lines more cost less than a call whose blocks do not fit.
constexpr std::uint64_t kLineBytes = 64;
constexpr std::uint64_t kLeastBytes = 256;
constexpr std::size_t kMostRanksWithLeast = 64;
constexpr int kMostWaits = 15;

std::uint64_t least_bytes(std::size_t ranks) {
  return ranks <= kMostRanksWithLeast ? kLeastBytes : kLineBytes;
}

std::uint64_t envelope_of(std::uint64_t bytes, std::size_t ranks) {
  const std::uint64_t lines = (bytes + ExpectedCounts::kPrefixBytes + kLineBytes - 1) / kLineBytes;
  return std::max(lines * kLineBytes, least_bytes(ranks));
}

/// What a rank has for itself needs no envelope.
bool is_own(std::size_t pair, std::size_t ranks) { return pair / ranks == pair % ranks; }

/// Whether no rank sends to others, or awaits from them, more.
bool all_send_at_most(std::uint64_t most_bytes, std::span<const std::uint64_t> counts,
                      std::size_t ranks) {
  // What others say may be any number, and sums of them, too.
  for (std::size_t pair = 0; pair < counts.size(); ++pair) {
    if (!is_own(pair, ranks) && counts[pair] > most_bytes) return false;
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::uint64_t sent = 0;
    std::uint64_t awaited = 0;
    for (std::size_t other = 0; other < ranks; ++other) {
      if (other == rank) continue;
      sent += counts[rank * ranks + other];
      awaited += counts[other * ranks + rank];
    }
    if (std::max(sent, awaited) > most_bytes) return false;
  }
  return true;
}

}  // namespace

void ExpectedCounts::learn(std::span<const std::uint64_t> counts, std::size_t ranks) {
  const bool had_any = !envelopes_.empty();
  std::uint64_t total = 0;
  for (std::size_t pair = 0; pair < counts.size(); ++pair) {
    if (!is_own(pair, ranks)) total += counts[pair];
  }
  longest_bytes_ = counts.empty() ? 0 : *std::ranges::max_element(counts);
  if (had_any && fit(counts) && !are_much_too_large_for(total)) {
    if (waits_ > 0) --waits_;
    return;
  }
  if (had_any) waits_ = waits_after_failure_;
  expect(counts, ranks);
}

void ExpectedCounts::fitted(std::uint64_t total_bytes, std::uint64_t longest_bytes) {
  longest_bytes_ = longest_bytes;
  waits_after_failure_ /= 2;
  if (!are_much_too_large_for(total_bytes)) return;
  envelopes_.clear();
  ++version_;
}

void ExpectedCounts::did_not_fit() {
  waits_after_failure_ = std::min(2 * waits_after_failure_ + 1, kMostWaits);
  waits_ = waits_after_failure_;
}

void ExpectedCounts::has_no_room() {
  envelopes_.clear();
  ++version_;
  waits_ = waits_after_failure_ = kMostWaits;
}

/// A rank has no envelope for itself, and needs none.
bool ExpectedCounts::fit(std::span<const std::uint64_t> counts) const {
  for (std::size_t pair = 0; pair < counts.size(); ++pair) {
    const std::uint64_t envelope = envelopes_[pair];
    if (envelope > 0 && counts[pair] > envelope - kPrefixBytes) return false;
  }
  return true;
}

bool ExpectedCounts::are_much_too_large_for(std::uint64_t total_bytes) const {
  return total_bytes_ > 2 * (total_bytes + least_total_bytes_);
}

void ExpectedCounts::expect(std::span<const std::uint64_t> counts, std::size_t ranks) {
  envelopes_.clear();
  ++version_;
  if (ranks < 2 || ranks > kMostRanks) return;
  if (!all_send_at_most(kMostRankBytes, counts, ranks)) return;
  envelopes_.reserve(counts.size());
  for (std::size_t pair = 0; pair < counts.size(); ++pair) {
    envelopes_.push_back(is_own(pair, ranks) ? 0 : envelope_of(counts[pair], ranks));
  }
  total_bytes_ = std::accumulate(envelopes_.begin(), envelopes_.end(), std::uint64_t{0});
  least_total_bytes_ = envelopes_.size() * least_bytes(ranks);
}

}  // namespace allrail
