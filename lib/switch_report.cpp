#include "lib/switch_report.hpp"

#include <algorithm>
#include <utility>

#include "lib/base/error.hpp"
#include "lib/world.hpp"

namespace allrail::diagnostics {

std::vector<LeafInfo> describe_switches(const Communicator& communicator) {
  const World& world = communicator.internals();
  const schedule::Switches* switches = world.roster().switches().get();
  if (switches == nullptr) return {};
  const SwitchNames& names = world.switch_names();
  std::vector<LeafInfo> leaves(names.leaves.size());
  for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    leaves[leaf].name = names.leaves[leaf];
    if (switches->chassis_of.empty()) continue;
    leaves[leaf].chassis = switches->chassis_of[leaf];
    leaves[leaf].chassis_name = names.chassis[static_cast<std::size_t>(leaves[leaf].chassis)];
  }
  for (std::size_t node = 0; node < switches->leaf_of.size(); ++node) {
    leaves[static_cast<std::size_t>(switches->leaf_of[node])].nodes.push_back(
        static_cast<int>(node));
  }
  return leaves;
}

std::shared_ptr<const schedule::Switches> imagined_switches(const std::vector<LeafInfo>& leaves,
                                                            int nodes) {
  if (leaves.empty()) return nullptr;
  auto switches = std::make_shared<schedule::Switches>();
  switches->leaf_of.assign(static_cast<std::size_t>(nodes), -1);
  int named = 0;
  for (const LeafInfo& leaf : leaves) {
    if (leaf.nodes.empty()) continue;  // what is numbered without gaps is in range
    const int number = static_cast<int>(switches->chassis_of.size());
    switches->chassis_of.push_back(leaf.chassis);
    for (const int node : leaf.nodes) {
      if (node >= 0 && node < nodes) switches->leaf_of[static_cast<std::size_t>(node)] = number;
      ++named;
    }
  }
  if (named != nodes || std::ranges::find(switches->leaf_of, -1) != switches->leaf_of.end()) {
    base::fail(Code::InvalidArgument,
               "the leaf switches of {} nodes are given, and there are {} nodes", named, nodes);
  }
  if (std::ranges::any_of(switches->chassis_of, [](int one) { return one < 0; })) {
    switches->chassis_of.clear();
  }
  return switches;
}

}  // namespace allrail::diagnostics
