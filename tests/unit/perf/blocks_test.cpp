// Blocks of different sizes: that they have what they should, and lose no byte.
#include "perf/blocks.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace allrail::perf {
namespace {

using Counts = std::vector<std::size_t>;

constexpr BlockShape kShapes[] = {BlockShape::Even, BlockShape::Ramp, BlockShape::Single};
constexpr std::size_t kRanks[] = {1, 2, 3, 4, 7, 8, 48, 1000};
constexpr std::uint64_t kMeans[] = {0, 1, 2, 7, 8, 64, 1000, 1 << 20, 1'234'567'891};

Counts counts_of(const Blocks& blocks) { return {blocks.counts().begin(), blocks.counts().end()}; }

TEST(Blocks, TheirMeanIsExact) {
  for (const BlockShape shape : kShapes) {
    for (const std::size_t ranks : kRanks) {
      for (const std::uint64_t mean : kMeans) {
        const Blocks blocks = blocks_of_ranks(shape, mean, ranks, ranks / 2);
        const auto counts = counts_of(blocks);
        ASSERT_EQ(counts.size(), ranks);
        EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), mean * ranks)
            << shape_name(shape) << ", " << ranks << " ranks, " << mean;
        EXPECT_EQ(blocks.total(), mean * ranks);
      }
    }
  }
}

TEST(Blocks, OneLiesBehindTheOther) {
  const Blocks blocks(Counts{3, 0, 5});
  EXPECT_EQ(blocks.offset(0), 0U);
  EXPECT_EQ(blocks.offset(1), 3U);
  EXPECT_EQ(blocks.offset(2), 3U);
  EXPECT_EQ(blocks.bytes(2), 5U);
  EXPECT_EQ(blocks.total(), 8U);
}

TEST(Blocks, ARampIsInProportionToLessThanOneByte) {
  EXPECT_EQ(counts_of(blocks_of_ranks(BlockShape::Ramp, 4, 4, 0)), (Counts{1, 3, 5, 7}));
  EXPECT_EQ(counts_of(blocks_of_ranks(BlockShape::Ramp, 1, 4, 0)), (Counts{0, 1, 1, 2}));
  EXPECT_EQ(counts_of(blocks_of_ranks(BlockShape::Ramp, 0, 4, 0)), (Counts{0, 0, 0, 0}));
  EXPECT_EQ(counts_of(blocks_of_ranks(BlockShape::Ramp, 9, 1, 0)), (Counts{9}));
  for (const std::size_t ranks : kRanks) {
    for (const std::uint64_t mean : kMeans) {
      const Blocks blocks = blocks_of_ranks(BlockShape::Ramp, mean, ranks, 0);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const auto exact = static_cast<double>(mean) * static_cast<double>(2 * rank + 1) /
                           static_cast<double>(ranks);
        EXPECT_LT(std::abs(static_cast<double>(blocks.bytes(rank)) - exact), 1)
            << rank << " of " << ranks << ", " << mean;
      }
    }
  }
}

TEST(Blocks, OneHasAllOrAllHaveTheSame) {
  EXPECT_EQ(counts_of(blocks_of_ranks(BlockShape::Single, 5, 3, 2)), (Counts{0, 0, 15}));
  EXPECT_EQ(counts_of(blocks_of_ranks(BlockShape::Single, 5, 1, 0)), (Counts{5}));
  EXPECT_EQ(counts_of(blocks_of_ranks(BlockShape::Even, 5, 3, 2)), (Counts{5, 5, 5}));
  EXPECT_EQ(single_owner(0, 1), 0U);
  EXPECT_EQ(single_owner(0, 4), 2U);
  EXPECT_EQ(single_owner(3, 4), 1U);
  EXPECT_EQ(single_owner(2, 5), 4U);
}

TEST(Blocks, PairsAgreeInBothDirectionsAndDifferByBothEnds) {
  for (const std::size_t ranks : kRanks) {
    if (ranks > 48) continue;
    std::vector<Counts> matrix;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Blocks blocks = blocks_of_pairs(BlockShape::Ramp, 100, ranks, rank);
      EXPECT_EQ(blocks.total(), 100 * ranks);
      matrix.push_back(counts_of(blocks));
    }
    for (std::size_t from = 0; from < ranks; ++from) {
      for (std::size_t to = 0; to < ranks; ++to) EXPECT_EQ(matrix[from][to], matrix[to][from]);
      EXPECT_EQ(matrix[from] == matrix[0], from == 0);
    }
  }
  EXPECT_EQ(counts_of(blocks_of_pairs(BlockShape::Ramp, 4, 4, 1)), (Counts{3, 5, 7, 1}));
  // Everybody has one block to send, and one to take.
  EXPECT_EQ(counts_of(blocks_of_pairs(BlockShape::Single, 4, 4, 0)), (Counts{0, 0, 16, 0}));
  EXPECT_EQ(counts_of(blocks_of_pairs(BlockShape::Single, 4, 4, 1)), (Counts{0, 16, 0, 0}));
}

}  // namespace
}  // namespace allrail::perf
