// ALLRAIL_NODES: how the ranks of one host are divided into virtual nodes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace allrail {

/// The virtual node (0, 1, ...) of each of `ranks` ranks of one host, in rank order, by `spec`:
/// empty: one node; `4`: four blocks whose sizes differ by at most one; `3+1+2`: blocks of these
/// sizes; `cyclic:4`: rank i on node i mod 4; `0,1,0,2`: the node of each rank.
/// @throws Error{BadConfiguration} naming the spec and what is wrong with it.
std::vector<int> virtual_nodes(std::string_view spec, int ranks);

/// The node of every rank of the job, numbered in the order of their first ranks: ranks with equal
/// `host` text share a host, and each host is divided by `spec`.
std::vector<int> node_of_ranks(const std::vector<std::string>& host, std::string_view spec);

}  // namespace allrail
