// ALLRAIL_NODES: every rank has a node, no node is empty, and what is refused is named.
#include <algorithm>
#include <string>

#include "include/allrail/error.hpp"
#include "lib/node_spec.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace allrail::fuzz {

/// An input is the number of ranks less one, and the setting.
std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  std::string long_one = "1000000";
  for (int i = 0; i < 2200; ++i) long_one += "+1000000";
  for (const std::string& text : {std::string(), std::string("4"), std::string("3+1+2"),
                                  std::string("cyclic:4"), std::string("0,1,0,2,1,0"), long_one}) {
    Bytes seed = bytes_of(text);
    seed.insert(seed.begin(), std::byte{5});
    all.push_back(std::move(seed));
  }
  return all;
}

void fuzz_one(std::span<const std::byte> input) {
  Choices choices(input);
  const int ranks = 1 + static_cast<int>(choices.below(256));
  const std::string_view spec = text_of(choices.rest());
  std::vector<int> nodes;
  try {
    nodes = virtual_nodes(spec, ranks);
  } catch (const Error& error) {
    require(error.code() == Code::BadConfiguration &&
                std::string_view(error.what()).starts_with("ALLRAIL_NODES is '"),
            "what is refused is named");
    return;
  }
  require(static_cast<int>(nodes.size()) == ranks, "every rank has a node");
  const int highest = *std::ranges::max_element(nodes);
  for (int node = 0; node <= highest; ++node) {
    require(std::ranges::find(nodes, node) != nodes.end(), "no node is empty");
  }
  require(std::ranges::none_of(nodes, [](int node) { return node < 0; }), "nodes count from 0");
  // Two hosts, by turns: the ranks of one node are of one host.
  std::vector<std::string> hosts;
  for (int rank = 0; rank < 2 * ranks; ++rank) hosts.emplace_back(rank % 2 == 0 ? "a" : "b");
  const std::vector<int> of_rank = node_of_ranks(hosts, spec);
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto first = std::ranges::find(of_rank, of_rank[rank]) - of_rank.begin();
    require(hosts[static_cast<std::size_t>(first)] == hosts[rank], "no node spans two hosts");
  }
  require(*std::ranges::max_element(of_rank) == 2 * highest + 1, "both hosts have all their nodes");
}

}  // namespace allrail::fuzz
