#include "coll/schedule/switch_tree.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace allrail::schedule {
namespace {

/// Where a member of a group stands in the tree of the group, by numbers of members.
struct Standing {
  int parent;
  int step;
  int run;  // members from this one on that are below it, itself included
};

/// Of a member but the first.
Standing standing_of(int member, int members, Join join, int ports) {
  if (join == Join::Direct) return {0, (member - 1) / ports, 1};
  int step = 0;
  TreeLevel level{members, ports, 1};
  for (; !level.is_child(member); level.size = level.above()) ++step;
  return {level.parent_of(member), step, level.subtree(member)};
}

int steps_of(int members, Join join, int ports) {
  if (join == Join::Direct) return (members - 1 + ports - 1) / ports;
  int steps = 0;
  for (TreeLevel level{members, ports, 1}; level.size < members; level.size = level.above()) {
    ++steps;
  }
  return steps;
}

class Builder {
 public:
  Builder(Join join, int ports) : join_(join), ports_(ports) {}

  /// A tree of nodes, the first one on top.
  Tree tree_of(std::vector<int> nodes) const {
    const int members = static_cast<int>(nodes.size());
    Tree tree{std::move(nodes), {-1}, {members}, {0}, steps_of(members, join_, ports_)};
    for (int member = 1; member < members; ++member) {
      const Standing standing = standing_of(member, members, join_, ports_);
      tree.parent.push_back(standing.parent);
      tree.size.push_back(standing.run);
      tree.round.push_back(standing.step);
    }
    return tree;
  }

  /// One tree of several: their tops come together like nodes, in rounds behind `first_round`. The
  /// trees keep their order, since what is below a top is a run of trees.
  Tree joined(const std::vector<Tree>& trees, int first_round) const {
    const int members = static_cast<int>(trees.size());
    std::vector<int> start{0};  // by tree: the place of its top
    for (const Tree& tree : trees) start.push_back(start.back() + tree.size[0]);
    Tree whole;
    for (int member = 0; member < members; ++member) {
      const Tree& tree = trees[at(member)];
      const int top = start[at(member)];
      whole.order.insert(whole.order.end(), tree.order.begin(), tree.order.end());
      whole.size.insert(whole.size.end(), tree.size.begin(), tree.size.end());
      whole.round.insert(whole.round.end(), tree.round.begin(), tree.round.end());
      for (const int parent : tree.parent) whole.parent.push_back(parent + top);
      if (member == 0) continue;
      const Standing standing = standing_of(member, members, join_, ports_);
      whole.parent[at(top)] = start[at(standing.parent)];
      whole.round[at(top)] = first_round + standing.step;
      whole.size[at(top)] = start[at(member + standing.run)] - top;
    }
    whole.parent[0] = -1;
    whole.size[0] = start.back();
    whole.rounds = first_round + steps_of(members, join_, ports_);
    return whole;
  }

  /// One tree of the trees of every group, `group_of` them by tree. That of the first tree, which
  /// has the root, comes first, and all have the rounds of the one that has most.
  std::vector<Tree> joined_by_group(std::vector<Tree> trees,
                                    const std::vector<int>& group_of) const {
    const int first_round = trees[0].rounds;
    std::vector<std::vector<Tree>> groups(at(*std::ranges::max_element(group_of)) + 1);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      groups[at(group_of[i])].push_back(std::move(trees[i]));
    }
    std::swap(groups[0], groups[at(group_of[0])]);
    std::vector<Tree> whole;
    for (const std::vector<Tree>& group : groups) {
      if (!group.empty()) whole.push_back(joined(group, first_round));
    }
    return with_equal_rounds(std::move(whole));
  }

  static std::vector<Tree> with_equal_rounds(std::vector<Tree> trees) {
    int rounds = 0;
    for (const Tree& tree : trees) rounds = std::max(rounds, tree.rounds);
    for (Tree& tree : trees) tree.rounds = rounds;
    return trees;
  }

 private:
  const Join join_;
  const int ports_;
};

}  // namespace

Tree tree_over_switches(const Switches& switches, int root, Join join, int ports) {
  const Builder builder(join, ports);
  const int root_leaf = switches.leaf_of[at(root)];
  const int leader =
      static_cast<int>(std::ranges::find(switches.leaf_of, root_leaf) - switches.leaf_of.begin());
  std::vector<std::vector<int>> nodes_of(at(*std::ranges::max_element(switches.leaf_of)) + 1);
  for (int node = 0; node < static_cast<int>(switches.leaf_of.size()); ++node) {
    if (node == leader || node != root) nodes_of[at(switches.leaf_of[at(node)])].push_back(node);
  }
  std::swap(nodes_of[0], nodes_of[at(root_leaf)]);
  std::vector<Tree> trees;
  for (std::vector<int>& nodes : nodes_of) {
    if (!nodes.empty()) trees.push_back(builder.tree_of(std::move(nodes)));
  }
  trees = Builder::with_equal_rounds(std::move(trees));
  if (!switches.chassis_of.empty()) {
    std::vector<int> chassis_of;
    chassis_of.reserve(trees.size());
    for (const Tree& tree : trees) {
      chassis_of.push_back(switches.chassis_of[at(switches.leaf_of[at(tree.order[0])])]);
    }
    trees = builder.joined_by_group(std::move(trees), chassis_of);
  }
  Tree whole = builder.joined(trees, trees[0].rounds);
  if (root == leader) return whole;
  return Builder(Join::Direct, 1).joined({builder.tree_of({root}), whole}, whole.rounds);
}

}  // namespace allrail::schedule
