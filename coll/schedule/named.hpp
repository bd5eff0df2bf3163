#pragma once

#include <span>
#include <string_view>

namespace allrail::schedule {

/// The row of that name in an algorithm table, or nullptr.
template <class Algorithm>
const Algorithm* find_named(std::span<const Algorithm> table, std::string_view name) {
  for (const Algorithm& algorithm : table) {
    if (algorithm.name == name) return &algorithm;
  }
  return nullptr;
}

}  // namespace allrail::schedule
