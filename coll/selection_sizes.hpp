// Sizes as the rows of the selection tables write them.
#pragma once

#include <cstdint>
#include <limits>

namespace allrail::coll {

inline constexpr std::uint64_t kAnySize = std::numeric_limits<std::uint64_t>::max();
inline constexpr std::uint64_t kKibi = 1024;

}  // namespace allrail::coll
