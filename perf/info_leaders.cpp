#include "perf/info_leaders.hpp"

#include <utility>

#include <allrail/allrail.hpp>
#include <fmt/core.h>

#include "lib/base/parse.hpp"
#include "lib/diagnostics.hpp"

namespace allrail::perf {
namespace {

using diagnostics::LeadershipInfo;
using diagnostics::NodeLeadership;
using diagnostics::RankLeadership;

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string place_of(const RankLeadership& rank) {
  std::string text = rank.cpus.empty() ? "" : fmt::format("cpus {}, ", rank.cpus);
  text += rank.domain < 0 ? "in no known domain" : fmt::format("domain {}", rank.domain);
  if (rank.rail_levels >= 0) {
    text += fmt::format(", {} {} from {}", rank.rail_levels,
                        rank.rail_levels == 1 ? "level" : "levels", join(rank.near_rails));
  }
  return text;
}

/// Who else is near one of the same rails, and leads.
std::string sharers(const NodeLeadership& node, std::size_t lane) {
  const auto& mine = node.ranks[static_cast<std::size_t>(node.leaders[lane].local)].near_rails;
  std::vector<std::string> others;
  for (std::size_t other = 0; other < node.leaders.size(); ++other) {
    const auto& rank = node.ranks[static_cast<std::size_t>(node.leaders[other].local)];
    bool shares = false;
    for (const std::string& rail : rank.near_rails) {
      for (const std::string& one : mine) shares = shares || rail == one;
    }
    if (other != lane && shares) others.push_back(std::to_string(other));
  }
  return others.empty() ? ""
                        : (others.size() > 1 ? ", shared with leaders " : ", shared with leader ") +
                              join(others);
}

void print_leader(const NodeLeadership& node, std::size_t lane) {
  const auto& leader = node.leaders[lane];
  const RankLeadership& rank = node.ranks[static_cast<std::size_t>(leader.local)];
  std::vector<std::string> members;
  for (const RankLeadership& one : node.ranks) {
    if (one.group == static_cast<int>(lane)) members.push_back(std::to_string(one.rank));
  }
  fmt::print("  leader {}: rank {}: {}\n", lane, rank.rank, leader.why);
  fmt::print("    group: {}\n",
             members.empty() ? "no rank, it only receives for the node" : "ranks " + join(members));
  if (rank.rails.empty()) {
    fmt::print("    rails: none\n");
  } else if (rank.near_rails.empty() || rank.near_rails == rank.rails) {
    fmt::print("    rails: {}, all alike{}\n", join(rank.rails),
               rank.near_rails.empty() ? ": none is known to be nearer" : sharers(node, lane));
  } else {
    fmt::print("    rails: small puts come to it over {} first, the nearest{}; long ones over {}\n",
               join(rank.near_rails), sharers(node, lane), join(rank.rails));
  }
}

void print(const LeadershipInfo& info) {
  fmt::print(
      "policy {}: {} leader(s) per node, the same on all nodes; sockets and rails call for {}, and "
      "a call takes one of them for every {} that a node contributes\n",
      info.policy, info.lanes, info.natural_leaders, base::format_bytes(info.bytes_per_leader));
  for (std::size_t number = 0; number < info.nodes.size(); ++number) {
    const NodeLeadership& node = info.nodes[number];
    fmt::print("node {}\n", number);
    for (std::size_t lane = 0; lane < node.leaders.size(); ++lane) print_leader(node, lane);
    for (const RankLeadership& rank : node.ranks) {
      fmt::print("  rank {:<4} group {:<3} {}\n", rank.rank, rank.group, place_of(rank));
    }
  }
}

}  // namespace

void add_leaders(CLI::App& app, LeaderQuestion& question) {
  CLI::App* leaders = app.add_subcommand(
      "leaders", "which ranks lead, which group each rank is in, which rails they use, and why");
  leaders->add_option("--topology", question.topology_file,
                      "imagine nodes of this machine: a file of lstopo --of xml");
  leaders
      ->add_option("--rails", question.rails,
                   "their rails by name or PCI address (default: all RDMA devices)")
      ->delimiter(',')
      ->expected(1, 8);
  leaders->add_option("--ranks", question.ranks, "imagine so many ranks (default: one per core)")
      ->check(CLI::Range(1, 4096));
  leaders->add_option("--nodes", question.nodes, "their nodes, as in ALLRAIL_NODES");
  leaders->add_option("--leader-policy", question.policy, "instead of ALLRAIL_LEADER_POLICY")
      ->check(CLI::IsMember({"near", "socket", "packed"}));
  leaders->add_option("--leaders", question.leaders, "per node (default: as many as called for)")
      ->check(CLI::Range(0, 64));
  leaders->callback([&question] { question.asked = true; });
}

int show_leaders(const LeaderQuestion& question, Options options) {
  if (!question.policy.empty()) options.leader_policy = question.policy;
  if (!question.topology_file.empty() || question.ranks > 0 || !question.rails.empty()) {
    print(diagnostics::imagine_leaders(
        {question.topology_file, question.rails, question.ranks, question.nodes}, options,
        question.leaders));
    return 0;
  }
  if (!question.nodes.empty()) options.nodes = question.nodes;
  const Communicator communicator = Communicator::world(options);
  if (communicator.rank() == 0) print(diagnostics::explain_leaders(communicator, question.leaders));
  return 0;
}

}  // namespace allrail::perf
