#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

// Whole areas of memory at once: of loops over single bytes the builds with sanitizers look at
// every byte, and most of the time of the tests that move many went there.
namespace allrail {

inline bool same_bytes(std::span<const std::byte> one, std::span<const std::byte> other) {
  return one.size() == other.size() &&
         (one.empty() || std::memcmp(one.data(), other.data(), one.size()) == 0);
}

inline bool all_are(std::span<const std::byte> bytes, std::byte value) {
  return bytes.empty() ||
         (bytes.front() == value && same_bytes(bytes.subspan(1), bytes.first(bytes.size() - 1)));
}

/// `random` gives 64 bits at a time.
template <typename Random>
void fill_randomly(std::span<std::byte> bytes, Random& random) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, std::min(sizeof word, bytes.size() - at));
  }
}

}  // namespace allrail
