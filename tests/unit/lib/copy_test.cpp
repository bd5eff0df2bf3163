#include "lib/base/copy.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace allrail::base {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

/// Copies between such places of a page, and looks at every byte of the target and around it.
void expect_copy(std::uint64_t bytes, std::uint64_t from_offset, std::uint64_t to_offset) {
  std::vector<std::byte> source(bytes + 2 * kPageBytes);
  for (std::size_t i = 0; i < source.size(); ++i) {
    source[i] = static_cast<std::byte>(i * 7 + i / 251);
  }
  std::vector<std::byte> target(bytes + 2 * kPageBytes, std::byte{0xA5});
  std::vector<std::byte> expected = target;
  std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from_offset), bytes,
              expected.begin() + static_cast<std::ptrdiff_t>(to_offset));
  copy_block(target.data() + to_offset, source.data() + from_offset, bytes);
  EXPECT_TRUE(target == expected) << bytes << " bytes from " << from_offset << " to " << to_offset;
}

TEST(CopyBlock, HasEveryByteAroundTheSizesWhereTheWayChanges) {
  for (const std::uint64_t size :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{63}, kLeastCopiedByString,
        3 * kLeastCopiedByString + 17, kMostCopiedByString}) {
    for (const int more : {-1, 0, 1}) {
      if (size == 0 && more < 0) continue;
      expect_copy(size + static_cast<std::uint64_t>(more), 16, 64);
    }
  }
}

TEST(CopyBlock, MayBeginAndEndAnywhere) {
  for (const std::uint64_t from : {0, 1, 16, 40, 63, 64, 2048, 4095}) {
    for (const std::uint64_t to : {0, 1, 17, 40, 63, 64, 2112, 4095}) {
      expect_copy(kLeastCopiedByString + 33, from, to);
    }
  }
}

}  // namespace
}  // namespace allrail::base
