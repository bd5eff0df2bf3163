#include "tests/multiprocess/collectives/split_support.hpp"

#include <algorithm>
#include <numeric>

namespace probe {

Part split_off(const std::string& name, const allrail::Communicator& parent,
               const std::vector<int>& members, const NumberOf& color_of, const NumberOf& key_of) {
  const int color = color_of(parent.rank());
  Part part;
  part.name = name;
  part.communicator = parent.split(color, key_of(parent.rank()));
  if (part.communicator.has_value() != (color >= 0)) {
    throw WrongBytes("wrong split " + name + ": color " + std::to_string(color));
  }
  if (color < 0) return part;
  std::vector<std::pair<int, int>> order;  // key and rank
  for (int rank = 0; rank < parent.size(); ++rank) {
    if (color_of(rank) == color) order.emplace_back(key_of(rank), rank);
  }
  std::ranges::sort(order);
  for (const auto& [key, rank] : order) {
    part.members.push_back(members[static_cast<std::size_t>(rank)]);
  }
  allrail::Communicator& communicator = *part.communicator;
  const int me = members[static_cast<std::size_t>(parent.rank())];
  std::vector<int> found(static_cast<std::size_t>(communicator.size()));
  const std::vector<int> mine{me};
  communicator.allgather(mine, found);
  const bool right = found == part.members && communicator.node_rank() < communicator.node_size() &&
                     found[static_cast<std::size_t>(communicator.rank())] == me &&
                     communicator.node() < communicator.node_count();
  if (!right) throw WrongBytes("wrong split " + name + ": other ranks, or in another order");
  return part;
}

std::vector<Part> make_parts(const allrail::Communicator& world, int columns) {
  std::vector<int> all(static_cast<std::size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  const auto same = [](int) { return 0; };
  const auto itself = [](int rank) { return rank; };
  std::vector<Part> parts;
  const auto add = [&](const std::string& name, const NumberOf& color, const NumberOf& key) {
    parts.push_back(split_off(name, world, all, color, key));
  };
  add(
      "row", [columns](int rank) { return rank / columns; }, itself);
  add(
      "column", [columns](int rank) { return rank % columns; }, same);
  add("reversed", same, [](int rank) { return -rank; });
  add("shuffled", same, [](int rank) { return (rank * 7 + 3) % 5; });
  add(
      "without some", [](int rank) { return rank % 3 == 0 ? -1 - rank : 7; }, itself);
  add("alone", itself, same);
  const Part& row = parts.front();
  Part half = split_off(
      "half of a row", *row.communicator, row.members, [](int rank) { return rank % 2; },
      [](int rank) { return -rank; });
  parts.push_back(std::move(half));
  return parts;
}

}  // namespace probe
