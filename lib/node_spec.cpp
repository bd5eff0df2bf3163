#include "lib/node_spec.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "lib/base/error.hpp"
#include "lib/base/parse.hpp"

namespace allrail {
namespace {

[[noreturn]] void reject(std::string_view spec, const std::string& why) {
  base::fail(Code::BadConfiguration,
             "ALLRAIL_NODES is '{}': {}; use a number, sizes such as 3+1+2, cyclic:N, or the node "
             "of each rank such as 0,1,0,2",
             spec, why);
}

std::vector<int> numbers(std::string_view spec, char separator) {
  std::vector<int> values;
  for (const std::string& part : base::split(spec, separator)) {
    const auto value = base::parse_number(part);
    if (!value || *value > 1'000'000) reject(spec, fmt::format("'{}' is not a number", part));
    values.push_back(static_cast<int>(*value));
  }
  return values;
}

int node_count(std::string_view spec, std::string_view digits, int ranks) {
  const auto count = base::parse_number(digits);
  if (!count || *count == 0) reject(spec, fmt::format("'{}' is not a number of nodes", digits));
  if (*count > static_cast<std::uint64_t>(ranks)) {
    reject(spec, fmt::format("more nodes ({}) than ranks ({}) on the host", *count, ranks));
  }
  return static_cast<int>(*count);
}

std::vector<int> blocks(const std::vector<int>& sizes) {
  std::vector<int> nodes;
  for (std::size_t node = 0; node < sizes.size(); ++node) {
    nodes.insert(nodes.end(), static_cast<std::size_t>(sizes[node]), static_cast<int>(node));
  }
  return nodes;
}

}  // namespace

std::vector<int> virtual_nodes(std::string_view spec, int ranks) {
  if (spec.empty()) return std::vector<int>(static_cast<std::size_t>(ranks), 0);
  if (spec.starts_with("cyclic:")) {
    const int count = node_count(spec, spec.substr(7), ranks);
    std::vector<int> nodes(static_cast<std::size_t>(ranks));
    for (int i = 0; i < ranks; ++i) nodes[static_cast<std::size_t>(i)] = i % count;
    return nodes;
  }
  if (spec.find('+') != std::string_view::npos) {
    const auto sizes = numbers(spec, '+');
    if (std::ranges::find(sizes, 0) != sizes.end()) reject(spec, "a node has no rank");
    const auto total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    if (total != ranks) {
      reject(spec, fmt::format("the sizes add up to {}, the host has {} ranks", total, ranks));
    }
    return blocks(sizes);
  }
  if (spec.find(',') != std::string_view::npos) {
    auto nodes = numbers(spec, ',');
    if (static_cast<int>(nodes.size()) != ranks) {
      reject(spec, fmt::format("it names {} ranks, the host has {}", nodes.size(), ranks));
    }
    const int highest = *std::ranges::max_element(nodes);
    for (int node = 0; node <= highest; ++node) {
      if (std::ranges::find(nodes, node) == nodes.end()) {
        reject(spec, fmt::format("node {} has no rank", node));
      }
    }
    return nodes;
  }
  const int count = node_count(spec, spec, ranks);
  std::vector<int> sizes(static_cast<std::size_t>(count), ranks / count);
  for (int node = 0; node < ranks % count; ++node) ++sizes[static_cast<std::size_t>(node)];
  return blocks(sizes);
}

std::vector<int> node_of_ranks(const std::vector<std::string>& host, std::string_view spec) {
  std::map<std::string, std::vector<int>> ranks_of_host;
  for (std::size_t rank = 0; rank < host.size(); ++rank) {
    ranks_of_host[host[rank]].push_back(static_cast<int>(rank));
  }
  std::vector<std::pair<std::string, int>> label(host.size());
  for (const auto& [name, ranks] : ranks_of_host) {
    const auto nodes = virtual_nodes(spec, static_cast<int>(ranks.size()));
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      label[static_cast<std::size_t>(ranks[i])] = {name, nodes[i]};
    }
  }
  std::map<std::pair<std::string, int>, int> number_of;
  std::vector<int> node_of(host.size());
  for (std::size_t rank = 0; rank < host.size(); ++rank) {
    node_of[rank] =
        number_of.try_emplace(label[rank], static_cast<int>(number_of.size())).first->second;
  }
  return node_of;
}

}  // namespace allrail
