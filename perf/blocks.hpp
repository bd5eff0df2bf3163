// The blocks of a call, one behind the other: of one size, or of different ones as v-forms take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace allrail::perf {

/// How sizes differ: not at all; in equal steps, from almost nothing to almost twice the mean; or
/// as much as they can, with one block that has all bytes.
enum class BlockShape { Even, Ramp, Single };

const char* shape_name(BlockShape shape);
/// Of a name that shape_name() gives; even for every other.
BlockShape shape_named(std::string_view name);

/// The blocks of one buffer.
class Blocks {
 public:
  explicit Blocks(std::vector<std::size_t> counts)
      : counts_(std::move(counts)), offsets_(counts_.size()) {
    std::exclusive_scan(counts_.begin(), counts_.end(), offsets_.begin(), std::size_t{0});
  }

  std::span<const std::size_t> counts() const { return counts_; }
  std::size_t bytes(std::size_t index) const { return counts_[index]; }
  std::size_t offset(std::size_t index) const { return offsets_[index]; }
  std::size_t total() const { return offsets_.back() + counts_.back(); }

 private:
  std::vector<std::size_t> counts_;
  std::vector<std::size_t> offsets_;
};

/// A block of every rank, `ranks` times `mean_bytes` together. On a ramp that of rank r has
/// (2r + 1) / ranks times the mean, to less than one byte; of a single block `owner` is the rank.
Blocks blocks_of_ranks(BlockShape shape, std::uint64_t mean_bytes, std::size_t ranks,
                       std::size_t owner);

/// What `rank` sends to every rank, and takes from it: between ranks s and d as much as block
/// (s + d) mod `ranks` of the above has. So every rank sends and takes `ranks` times `mean_bytes`,
/// and blocks differ by both ends, yet not by direction, without which none could be in place.
Blocks blocks_of_pairs(BlockShape shape, std::uint64_t mean_bytes, std::size_t ranks,
                       std::size_t rank);

/// Who has the single block: half of all ranks behind the root, so on another node than that where
/// ranks are numbered by node and none has more than half of them.
std::size_t single_owner(std::size_t root, std::size_t ranks);

}  // namespace allrail::perf
