#include "perf/info_switches.hpp"

#include <fmt/core.h>

#include "lib/base/error.hpp"
#include "lib/base/parse.hpp"

namespace allrail::perf {

void print_switches(const Communicator& communicator) {
  const auto leaves = diagnostics::describe_switches(communicator);
  if (leaves.empty()) {
    fmt::print("Leaf switches: not known\n\n");
    return;
  }
  fmt::print("Leaf switches: {}\n", leaves.size());
  for (const diagnostics::LeafInfo& leaf : leaves) {
    std::string nodes;
    for (const int node : leaf.nodes) nodes += fmt::format(" {}", node);
    fmt::print("  {}{}: nodes{}\n", leaf.name,
               leaf.chassis < 0 ? "" : fmt::format(", chassis {}", leaf.chassis_name), nodes);
  }
  fmt::print("\n");
}

std::vector<diagnostics::LeafInfo> imagined_leaves(const std::string& text) {
  std::vector<diagnostics::LeafInfo> leaves;
  int node = 0;
  for (const std::string& part : base::split(text, ',')) {
    const auto leaf = base::parse_number(part);
    if (!leaf || *leaf > 65535) {
      base::fail(Code::InvalidArgument, "--leaves is '{}': '{}' is no number of a switch", text,
                 part);
    }
    if (leaves.size() <= *leaf) leaves.resize(*leaf + 1);
    leaves[*leaf].nodes.push_back(node++);
  }
  return leaves;
}

}  // namespace allrail::perf
