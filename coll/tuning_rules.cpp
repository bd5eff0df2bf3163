#include "coll/tuning_rules.hpp"

#include <algorithm>

#include "coll/recipe.hpp"

namespace allrail::coll {

bool TuningRule::fits(const SelectionFacts& facts) const {
  return bytes.holds(facts.bytes_per_rank) && ranks.holds(facts.ranks) &&
         nodes.holds(facts.nodes) && ranks_per_node.holds(facts.smallest_node) &&
         ranks_per_node.holds(facts.largest_node) && rails.holds(facts.rails);
}

const TuningRule* TuningRules::find(Operation operation, const SelectionFacts& facts) const {
  const auto rules = of.find(collective_name(operation));
  if (rules == of.end()) return nullptr;
  const auto rule = std::ranges::find_if(
      rules->second, [&facts](const TuningRule& each) { return each.fits(facts); });
  return rule == rules->second.end() ? nullptr : &*rule;
}

Selection select_by_rule(const TuningRule& rule, const SelectionFacts& facts, int leaders) {
  return {rule.algorithm, rule.ports > 0 ? rule.ports : facts.rails,
          rule.leaders > 0 ? rule.leaders : leaders,
          "by the rule at " + rule.origin + " (ALLRAIL_TUNING_FILE)"};
}

}  // namespace allrail::coll
