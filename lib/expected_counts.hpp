// What the next alltoallv of a communicator probably sends, from what all its ranks know of the
// calls before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "coll/envelopes.hpp"

namespace allrail {

/// Decides whether an alltoallv goes by the counts of an earlier one instead of exchanging its own,
/// and how much room each pair has then. Pure, and fed with what is the same on all ranks only, so
/// all decide alike.
class ExpectedCounts {
 public:
  /// What an envelope has in front of a block.
  static constexpr std::uint64_t kPrefixBytes = coll::Envelopes::kPrefixBytes;
  /// More ranks are not worth the memory. Where more bytes go from or to one of them, the exchange
  /// of counts is little beside them, and a call that does not fit is much.
  static constexpr std::size_t kMostRanks = 256;
  static constexpr std::uint64_t kMostRankBytes = 4ULL * 1024 * 1024;

  /// Whether the next call goes by what is expected.
  bool is_sure() const { return !envelopes_.empty() && waits_ == 0; }
  /// Bytes of the envelope of every pair, by from * ranks + to; none where a rank meets itself.
  std::span<const std::uint64_t> envelopes() const { return envelopes_; }
  /// The longest block of the newest call, also of what a rank has for itself.
  std::uint64_t longest_bytes() const { return longest_bytes_; }
  /// Changes with the envelopes.
  std::uint64_t version() const { return version_; }

  /// The counts of a call, in bytes, by from * ranks + to: they were exchanged.
  void learn(std::span<const std::uint64_t> counts, std::size_t ranks);
  /// A call went by what was expected, and sent so many bytes in envelopes; of the longest block.
  void fitted(std::uint64_t total_bytes, std::uint64_t longest_bytes);
  /// Some block of a call did not fit; its counts are learned next.
  void did_not_fit();
  /// So much room cannot be had: nothing is expected for some calls.
  void has_no_room();

 private:
  bool fit(std::span<const std::uint64_t> counts) const;
  bool are_much_too_large_for(std::uint64_t total_bytes) const;
  void expect(std::span<const std::uint64_t> counts, std::size_t ranks);

  std::vector<std::uint64_t> envelopes_;
  std::uint64_t total_bytes_ = 0;        // of the envelopes
  std::uint64_t least_total_bytes_ = 0;  // where all blocks are empty
  std::uint64_t longest_bytes_ = 0;
  std::uint64_t version_ = 0;
  // Calls whose counts have to fit before one goes by them again: more after each that did not.
  int waits_ = 0;
  int waits_after_failure_ = 0;
};

}  // namespace allrail
