// Bytes that tell where they came from: every block of a benchmark has its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace allrail::perf {

/// The 8 bytes at word `index` of the block of `rank` in round `seed` (splitmix64).
inline std::uint64_t pattern_word(int rank, std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = (static_cast<std::uint64_t>(rank) + 1) * 0x9E3779B97F4A7C15ULL +
                    seed * 0xD1B54A32D192ED03ULL + index * 0x8CB92BA72F3D8DD7ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  return z ^ (z >> 27);
}

inline void fill_pattern(std::span<std::byte> block, int rank, std::uint64_t seed) {
  for (std::size_t at = 0; at < block.size(); at += 8) {
    const std::uint64_t word = pattern_word(rank, seed, at / 8);
    std::memcpy(block.data() + at, &word, block.size() - at < 8 ? block.size() - at : 8);
  }
}

/// How many bytes of the block differ from the pattern.
inline std::uint64_t wrong_bytes(std::span<const std::byte> block, int rank, std::uint64_t seed) {
  std::uint64_t wrong = 0;
  for (std::size_t at = 0; at < block.size(); at += 8) {
    const std::uint64_t word = pattern_word(rank, seed, at / 8);
    const std::size_t count = block.size() - at < 8 ? block.size() - at : 8;
    if (std::memcmp(block.data() + at, &word, count) == 0) continue;
    const auto* expected = reinterpret_cast<const std::byte*>(&word);
    for (std::size_t i = 0; i < count; ++i) wrong += block[at + i] != expected[i] ? 1 : 0;
  }
  return wrong;
}

}  // namespace allrail::perf
