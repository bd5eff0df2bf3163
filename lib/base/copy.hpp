// Copies of blocks that cores hand to each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace allrail::base {

/// Shorter blocks go by memcpy() alone, which is as fast for them, and so do longer ones, which
/// leave the caches. Measured: docs/decisions/0033.
inline constexpr std::uint64_t kLeastCopiedByString = 4ULL * 1024;
inline constexpr std::uint64_t kMostCopiedByString = 2ULL * 1024 * 1024;

void copy_long_block(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept;

/// As memcpy(), which it is but for blocks of some KiB on processors whose string instruction is
/// faster where another core has the lines that are written. The two may not overlap.
inline void copy_block(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept {
  if (bytes < kLeastCopiedByString) {
    std::memcpy(to, from, bytes);
  } else {
    copy_long_block(to, from, bytes);
  }
}

}  // namespace allrail::base
