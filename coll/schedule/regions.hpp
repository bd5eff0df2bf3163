#pragma once

#include <cstdint>
#include <vector>

#include "coll/schedule/exchange.hpp"

// How the regions of an exchange lie in slot memory, and how transfers are cut to fit. Used by the
// lowering only.
namespace allrail::schedule {

/// The regions of n participants, one after the other without gaps.
class Regions {
 public:
  /// `data_bytes[i]` is what participant i contributes, without header.
  Regions(std::vector<std::uint64_t> data_bytes, Placement placement);

  std::uint64_t total_bytes() const { return total_bytes_; }
  /// Where the region of `block` starts in the memory of participant `owner`.
  std::uint64_t offset(int owner, int block) const;
  /// Bytes from the start of the first region to the end of the data of the last one.
  std::uint64_t span_bytes(const Transfer& piece) const;

 private:
  std::uint64_t distance(int from_block, int to_block) const;

  std::vector<std::uint64_t> data_bytes_;
  std::vector<std::uint64_t> starts_;
  std::uint64_t total_bytes_ = 0;
  Placement placement_;
};

/// Rounds are counted in 16 bits in a step; throws std::invalid_argument for more.
void check_rounds(const Exchange& exchange);

/// Whether `block` is one of the blocks of a transfer among n participants.
inline bool covers(const Transfer& transfer, int block, int participants) {
  return (block - transfer.first + participants) % participants < transfer.count;
}

/// Cuts a transfer between `sender` and `receiver` wherever one of the two memories is not
/// contiguous, so that both sides get the same pieces. `peer` is kept.
std::vector<Transfer> contiguous_pieces(const Transfer& transfer, int participants,
                                        Placement placement, int sender, int receiver);

}  // namespace allrail::schedule
