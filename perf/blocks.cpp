#include "perf/blocks.hpp"

namespace allrail::perf {
namespace {

/// Bytes of the blocks before `index` on a ramp: mean index^2 / ranks, in whole bytes. Blocks are
/// differences of these, so that they lose nothing of the total, which is that of index = ranks.
std::size_t ramp_offset(std::uint64_t mean_bytes, std::size_t ranks, std::size_t index) {
  const std::size_t square = index * index;
  return mean_bytes / ranks * square + mean_bytes % ranks * square / ranks;
}

}  // namespace

const char* shape_name(BlockShape shape) {
  switch (shape) {
    case BlockShape::Ramp:
      return "ramp";
    case BlockShape::Single:
      return "single";
    case BlockShape::Even:
      break;
  }
  return "even";
}

BlockShape shape_named(std::string_view name) {
  if (name == "ramp") return BlockShape::Ramp;
  return name == "single" ? BlockShape::Single : BlockShape::Even;
}

Blocks blocks_of_ranks(BlockShape shape, std::uint64_t mean_bytes, std::size_t ranks,
                       std::size_t owner) {
  std::vector<std::size_t> counts(ranks, shape == BlockShape::Even ? mean_bytes : 0);
  if (shape == BlockShape::Single) counts[owner] = ranks * mean_bytes;
  for (std::size_t rank = 0; shape == BlockShape::Ramp && rank < ranks; ++rank) {
    counts[rank] = ramp_offset(mean_bytes, ranks, rank + 1) - ramp_offset(mean_bytes, ranks, rank);
  }
  return Blocks(std::move(counts));
}

Blocks blocks_of_pairs(BlockShape shape, std::uint64_t mean_bytes, std::size_t ranks,
                       std::size_t rank) {
  const Blocks all = blocks_of_ranks(shape, mean_bytes, ranks, single_owner(0, ranks));
  std::vector<std::size_t> counts;
  for (std::size_t other = 0; other < ranks; ++other) {
    counts.push_back(all.bytes((rank + other) % ranks));
  }
  return Blocks(std::move(counts));
}

std::size_t single_owner(std::size_t root, std::size_t ranks) { return (root + ranks / 2) % ranks; }

}  // namespace allrail::perf
