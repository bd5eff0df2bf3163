// The memory of an alltoallv that goes by expected counts: every block travels in an envelope of a
// length that all ranks know, behind a word of how long it really is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lib/expected_counts.hpp"

namespace allrail {

/// Where a block lies in its buffer.
struct PlacedBlock {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// One rank's envelopes for all others, and theirs for it, one behind the other by rank.
class Envelopes {
 public:
  /// `lengths` by from * ranks + to: see ExpectedCounts::envelopes(). The own one is empty.
  void lay_out(std::span<const std::uint64_t> lengths, std::size_t ranks, std::size_t own);

  const std::vector<std::uint64_t>& sent_offsets() const { return sent_offsets_; }
  const std::vector<std::uint64_t>& awaited_offsets() const { return awaited_offsets_; }
  std::span<std::byte> sent() { return sent_; }
  std::span<std::byte> awaited() { return awaited_; }

  /// Copies the blocks of a call, by rank. Where one does not fit, all envelopes say so instead:
  /// every rank hears from every other, so all of them come to know.
  void fill(std::span<const std::byte> send, std::span<const PlacedBlock> blocks,
            std::span<const PlacedBlock> awaited);
  struct Sums {
    std::uint64_t total_bytes = 0;    // that all ranks sent in envelopes
    std::uint64_t longest_bytes = 0;  // of all blocks, also those that ranks have for themselves
  };
  /// By the words of all ranks. Nothing where a block of some rank did not fit.
  std::optional<Sums> sums() const;
  /// What another rank says of the two of us, where all fit. Input is untrusted.
  struct Pair {
    std::uint64_t sent_bytes = 0;     // by it
    std::uint64_t awaited_bytes = 0;  // by it; of very many some
  };
  Pair pair_of(std::size_t other) const;
  /// The longest block that fits into its envelope.
  std::uint64_t room_from(std::size_t other) const;
  /// Copies the blocks of the others out, each as long as it is awaited: at most its room.
  void empty(std::span<std::byte> receive, std::span<const PlacedBlock> blocks) const;

 private:
  struct Prefix {
    std::uint32_t bytes = 0;          // of the block behind it
    std::uint32_t awaited_bytes = 0;  // by its sender, from who receives it
    std::uint32_t total_bytes = 0;    // of all envelopes of its sender
    std::uint32_t longest_bytes = 0;  // of all its blocks
  };
  static_assert(sizeof(Prefix) == ExpectedCounts::kPrefixBytes);

  bool fit(std::span<const PlacedBlock> blocks) const;
  Prefix prefix_of(std::size_t from) const;

  std::size_t own_ = 0;
  Prefix own_prefix_;
  std::vector<std::uint64_t> sent_offsets_;     // one more than there are ranks: the end
  std::vector<std::uint64_t> awaited_offsets_;  // as well
  std::vector<std::byte> sent_;
  std::vector<std::byte> awaited_;
};

}  // namespace allrail
