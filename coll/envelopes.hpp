// The envelopes of an alltoallv that goes by expected counts: every block travels in one, of a
// length that all ranks know, behind a word of how long it really is. They exist on the way only:
// blocks are copied between the user's buffers and slot memory, where the words are beside them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace allrail::coll {

/// Where a block lies in its buffer.
struct PlacedBlock {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// One rank's envelopes for all others, and theirs for it.
class Envelopes {
 public:
  /// What an envelope has in front of a block.
  static constexpr std::uint64_t kPrefixBytes = 16;

  /// `lengths` by from * ranks + to, at least a prefix each. The own one is empty.
  void lay_out(std::span<const std::uint64_t> lengths, std::size_t ranks, std::size_t own);

  /// Begins a call. `sent` and `awaited` by rank; the buffers are used until the call has ended.
  /// Where some block does not fit, all envelopes say so and have none: every rank hears from every
  /// other, so all of them come to know. In place what is sent is copied first, which may throw
  /// std::bad_alloc.
  void begin(std::span<const std::byte> send, std::span<const PlacedBlock> sent,
             std::span<std::byte> receive, std::span<const PlacedBlock> awaited);
  /// Copies bytes [offset, offset + bytes) of an envelope to where it leaves from.
  void pack(std::size_t to, std::uint64_t offset, std::uint64_t bytes,
            std::byte* target) const noexcept;
  /// Copies the same out of where it arrived, in any order of offsets: what is awaited of it, but
  /// no more than it has room for. Input is untrusted.
  void unpack(std::size_t from, std::uint64_t offset, std::uint64_t bytes,
              const std::byte* source) noexcept;

  // After the call:

  struct Sums {
    std::uint64_t total_bytes = 0;    // that all ranks sent in envelopes
    std::uint64_t longest_bytes = 0;  // of all blocks, also those that ranks have for themselves
  };
  /// By the words of all ranks. Nothing where a block of some rank did not fit.
  std::optional<Sums> sums() const;
  /// A call in place in which some block did not fit may have overwritten what it was to send: that
  /// is in its buffer again.
  void take_back(std::span<std::byte> send, std::span<const PlacedBlock> sent) const;
  /// What another rank says of the two of us, where all fit. Input is untrusted.
  struct Pair {
    std::uint64_t sent_bytes = 0;     // by it
    std::uint64_t awaited_bytes = 0;  // by it; of very many some
  };
  Pair pair_of(std::size_t other) const;
  /// The longest block that fits into its envelope.
  std::uint64_t room_from(std::size_t other) const { return awaited_[other].room_bytes; }

 private:
  struct Prefix {
    std::uint32_t bytes = 0;          // of the block behind it
    std::uint32_t awaited_bytes = 0;  // by its sender, from who receives it
    std::uint32_t total_bytes = 0;    // of all envelopes of its sender
    std::uint32_t longest_bytes = 0;  // of all its blocks
  };
  static_assert(sizeof(Prefix) == kPrefixBytes);
  /// For a rank, and from one.
  struct Sent {
    std::uint64_t room_bytes = 0;
    Prefix prefix;
    const std::byte* block = nullptr;
    std::uint64_t bytes = 0;  // of it that travel
  };
  struct Awaited {
    std::uint64_t room_bytes = 0;
    Prefix prefix;
    std::byte* place = nullptr;
    std::uint64_t bytes = 0;
  };

  bool fit(std::span<const PlacedBlock> blocks) const;
  void save();

  std::size_t own_ = 0;
  bool all_fit_ = false;
  bool in_place_ = false;
  std::vector<Sent> sent_;        // by rank; of this one its words only
  std::vector<Awaited> awaited_;  // as well
  std::vector<std::byte> saved_;  // of a call in place
};

}  // namespace allrail::coll
