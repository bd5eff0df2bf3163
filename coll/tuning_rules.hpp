// Rules that say which algorithm a call takes: what a tuning file holds, once it is read.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "coll/block_header.hpp"
#include "coll/selection.hpp"

namespace allrail::coll {

/// Both ends belong to it.
struct CountRange {
  std::uint64_t least = 0;
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();

  bool holds(std::uint64_t count) const { return count >= least && count <= most; }
  bool holds(int count) const { return holds(static_cast<std::uint64_t>(count)); }
};

struct TuningRule {
  CountRange bytes;  // of the largest block, as in SelectionFacts
  CountRange ranks;
  CountRange nodes;
  CountRange ranks_per_node;  // every node of the job lies in it
  CountRange rails;           // of a rank; 1 where no rail is used
  std::string algorithm;
  int ports = 0;       // 0: as many as there are rails, as where a call names the algorithm
  int leaders = 0;     // 0: as the built-in table has it
  std::string origin;  // "FILE:LINE", for explanations

  bool fits(const SelectionFacts& facts) const;
};

/// Ordered lists of rules, by the plain name of the collective.
struct TuningRules {
  std::map<std::string, std::vector<TuningRule>> of;

  /// The first rule that fits a call, or null. v-forms have the rules of their plain collective.
  const TuningRule* find(Operation operation, const SelectionFacts& facts) const;
};

/// What the rule says of such a call. `leaders` is what the built-in table says.
Selection select_by_rule(const TuningRule& rule, const SelectionFacts& facts, int leaders);

}  // namespace allrail::coll
