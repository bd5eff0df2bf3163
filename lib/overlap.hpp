// Whether two buffers of a call share memory.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace allrail {

inline bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

}  // namespace allrail
