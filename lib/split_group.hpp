// Who is in a communicator with whom after a split, and in which order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace allrail {

/// What a rank says in a call of split().
struct SplitWish {
  std::int32_t color = 0;
  std::int32_t key = 0;
};

/// The ranks with the color of `rank`, by key and then by rank. Empty where that is negative.
inline std::vector<int> split_group(std::span<const SplitWish> wishes, int rank) {
  const std::int32_t color = wishes[static_cast<std::size_t>(rank)].color;
  std::vector<int> group;
  for (std::size_t one = 0; color >= 0 && one < wishes.size(); ++one) {
    if (wishes[one].color == color) group.push_back(static_cast<int>(one));
  }
  std::ranges::stable_sort(group, {},
                           [wishes](int one) { return wishes[static_cast<std::size_t>(one)].key; });
  return group;
}

/// The nodes of the ranks of a group, numbered anew by their first rank there.
inline std::vector<int> nodes_of_group(std::span<const int> node_of, std::span<const int> group) {
  std::vector<int> nodes;
  nodes.reserve(group.size());
  std::vector<int> number_of(node_of.size(), -1);
  int count = 0;
  for (const int rank : group) {
    int& number = number_of[static_cast<std::size_t>(node_of[static_cast<std::size_t>(rank)])];
    if (number < 0) number = count++;
    nodes.push_back(number);
  }
  return nodes;
}

}  // namespace allrail
