// Communicators of a grid of ranks, with who should be in them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/multiprocess/collectives/probe_support.hpp"

namespace probe {

/// A communicator that was split off, the same name on all ranks.
struct Part {
  std::string name;
  std::optional<allrail::Communicator> communicator;  // empty: this rank gave a negative color
  std::vector<int> members;                           // numbers in the job, in order

  /// Different for parts of the same name that exist side by side, and below 1000.
  std::uint64_t number() const { return static_cast<std::uint64_t>(members.front()); }
};

using NumberOf = std::function<int(int rank)>;

/// Splits `parent`, whose ranks are `members` of the job, and checks who came together and in which
/// order, by what split() promises and by what an allgather says. Collective.
/// @throws WrongBytes
Part split_off(const std::string& name, const allrail::Communicator& parent,
               const std::vector<int>& members, const NumberOf& color_of, const NumberOf& key_of);

/// Rows and columns of a grid with so many columns, and parts of other kinds: reversed, shuffled,
/// without some ranks, of one rank, and parts of a row. Collective over `world`.
std::vector<Part> make_parts(const allrail::Communicator& world, int columns);

}  // namespace probe
