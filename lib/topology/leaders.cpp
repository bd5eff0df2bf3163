#include "lib/topology/leaders.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

namespace allrail::topology {
namespace {

constexpr std::array<const char*, 3> kNames{"near", "socket", "packed"};

/// The domains that ranks are known to run in, ascending.
std::vector<int> domains_of(std::span<const RankPlace> node) {
  std::vector<int> domains;
  for (const RankPlace& place : node) {
    if (place.domain != kUnknownPlace) domains.push_back(place.domain);
  }
  std::ranges::sort(domains);
  domains.erase(std::unique(domains.begin(), domains.end()), domains.end());
  return domains;
}

/// The rails that are near to somebody, ascending.
std::vector<int> near_rails_of(std::span<const RankPlace> node) {
  unsigned mask = 0;
  for (const RankPlace& place : node) mask |= place.near_rails;
  std::vector<int> rails;
  for (int rail = 0; rail < 8; ++rail) {
    if ((mask >> rail & 1U) != 0) rails.push_back(rail);
  }
  return rails;
}

/// Without a rail to be near to, what is left of locality are the domains.
LeaderPolicy possible(LeaderPolicy policy, std::span<const RankPlace> node) {
  return policy == LeaderPolicy::Near && near_rails_of(node).empty() ? LeaderPolicy::Socket
                                                                     : policy;
}

bool says_something(std::span<const RankPlace> node) {
  return std::ranges::any_of(node, [&](const RankPlace& one) { return one != node.front(); });
}

class Election {
 public:
  Election(LeaderPolicy policy, std::span<const RankPlace> node, int lanes, Reasons reasons)
      : wanted_(policy),
        policy_(possible(policy, node)),
        node_(node),
        lanes_(lanes),
        reasons_(reasons == Reasons::Yes),
        domains_(domains_of(node)),
        rails_(near_rails_of(node)),
        times_led_(node.size(), 0) {
    result_.lane_of.assign(node.size(), -1);
    members_.assign(static_cast<std::size_t>(lanes), 0);
  }

  NodeLeaders run() {
    if (!says_something(node_)) return by_order();
    for (int lane = 0; lane < lanes_; ++lane) elect(lane);
    if (policy_ == LeaderPolicy::Socket) {
      follow_domains();
    } else {
      share_equally();
    }
    return std::move(result_);
  }

 private:
  int size() const { return static_cast<int>(node_.size()); }
  const RankPlace& place(int local) const { return node_[static_cast<std::size_t>(local)]; }
  int& lane_of(int local) { return result_.lane_of[static_cast<std::size_t>(local)]; }
  int share(int lane) const { return (lane + 1) * size() / lanes_ - lane * size() / lanes_; }
  void join(int local, int lane) {
    lane_of(local) = lane;
    ++members_[static_cast<std::size_t>(lane)];
  }

  NodeLeaders by_order() {
    for (int lane = 0; lane < lanes_; ++lane) {
      const int first = lane * size() / lanes_;
      result_.leaders.push_back(first);
      for (int local = first; local < first + share(lane); ++local) join(local, lane);
      if (!reasons_) continue;
      result_.why.emplace_back(
          first == (lane - 1) * size() / lanes_ && lane > 0
              ? "the node has fewer ranks than leaders, so this one leads again"
              : "the first of its group, since no rank is known to run elsewhere than the others");
    }
    return std::move(result_);
  }

  /// The domain whose ranks lane `lane` is for, or -1.
  int domain_of(int lane) const {
    if (domains_.empty()) return -1;
    if (policy_ == LeaderPolicy::Packed) return fullest_domain();
    const auto count = static_cast<int>(domains_.size());
    return domains_[static_cast<std::size_t>(lane * count / lanes_)];
  }

  int fullest_domain() const {
    const auto ranks_in = [&](int domain) {
      return std::ranges::count(node_, domain, [](const RankPlace& one) { return one.domain; });
    };
    return *std::ranges::max_element(domains_, {}, ranks_in);
  }

  /// Smaller is better.
  using Merit = std::tuple<int, int, int, int>;
  Merit merit(int local, int lane) const {
    const RankPlace& one = place(local);
    const int led = times_led_[static_cast<std::size_t>(local)];
    const int elsewhere = one.domain == domain_of(lane) ? 0 : 1;
    switch (policy_) {
      case LeaderPolicy::Near: {
        const bool has_rail = !rails_.empty() && (one.near_rails >> rail_for(lane) & 1U) != 0;
        return {led, one.rail_levels, has_rail ? 0 : 1, local};
      }
      case LeaderPolicy::Socket:
        return {led, elsewhere, one.rail_levels, local};
      case LeaderPolicy::Packed:
        return {elsewhere, led, local, 0};
    }
    return {};
  }

  int rail_for(int lane) const { return rails_[static_cast<std::size_t>(lane) % rails_.size()]; }

  void elect(int lane) {
    int best = 0;
    for (int local = 1; local < size(); ++local) {
      if (merit(local, lane) < merit(best, lane)) best = local;
    }
    if (reasons_) result_.why.push_back(reason(best, lane));
    result_.leaders.push_back(best);
    if (times_led_[static_cast<std::size_t>(best)]++ == 0) join(best, lane);
  }

  std::string reason(int local, int lane) const {
    const RankPlace& one = place(local);
    std::string text;
    if (policy_ == LeaderPolicy::Near) {
      text = one.rail_levels == kUnknownPlace
                 ? "those nearer to a rail lead already"
                 : fmt::format("nearest to a rail of those that do not lead yet, {} levels away",
                               one.rail_levels);
    } else if (one.domain != domain_of(lane)) {
      text = fmt::format("all ranks of domain {} lead already", domain_of(lane));
    } else if (policy_ == LeaderPolicy::Socket) {
      text = fmt::format("the one in domain {} that is nearest to a rail, or first", one.domain);
    } else {
      text = fmt::format("packed into domain {}, which has most ranks", one.domain);
    }
    if (wanted_ != policy_) text += "; no rail is known to be near any rank";
    if (times_led_[static_cast<std::size_t>(local)] > 0) text += "; it leads again";
    return text;
  }

  /// Everybody goes to the lanes of its domain, evenly; who may run anywhere where there are least.
  void follow_domains() {
    for (const bool known : {true, false}) {
      for (int local = 0; local < size(); ++local) {
        if (lane_of(local) >= 0 || (place(local).domain != kUnknownPlace) != known) continue;
        int best = -1;
        for (int lane = 0; lane < lanes_; ++lane) {
          if (known && !serves(lane, place(local).domain)) continue;
          if (best < 0 || members(lane) < members(best)) best = lane;
        }
        join(local, best);
      }
    }
  }

  int members(int lane) const { return members_[static_cast<std::size_t>(lane)]; }

  /// With fewer lanes than domains a lane has several domains, which follow each other.
  bool serves(int lane, int domain) const {
    const auto count = static_cast<int>(domains_.size());
    if (lanes_ >= count) return domain_of(lane) == domain;
    const auto at = static_cast<int>(std::ranges::find(domains_, domain) - domains_.begin());
    return ((at + 1) * lanes_ - 1) / count == lane;
  }

  /// Groups whose sizes differ by at most one, so that rails have as much to do for each. A leader
  /// has its neighbours first; then every domain stays together as far as there is room.
  void share_equally() {
    std::vector<int> rest(node_.size());
    std::iota(rest.begin(), rest.end(), 0);
    std::erase_if(rest, [&](int local) { return lane_of(local) >= 0; });
    std::ranges::stable_sort(rest, {}, [&](int local) { return place(local).domain; });
    for (const int local : rest) {
      int best = -1;
      for (int lane = 0; lane < lanes_; ++lane) {
        const int leader = result_.leaders[static_cast<std::size_t>(lane)];
        if (place(leader).domain != place(local).domain || !has_room(lane)) continue;
        if (best < 0 || members(lane) < members(best)) best = lane;
      }
      if (best >= 0) join(local, best);
    }
    int lane = 0;
    for (const int local : rest) {
      if (lane_of(local) >= 0) continue;
      while (!has_room(lane)) ++lane;
      join(local, lane);
    }
  }

  bool has_room(int lane) const { return members(lane) < share(lane); }

  const LeaderPolicy wanted_;
  const LeaderPolicy policy_;
  const std::span<const RankPlace> node_;
  const int lanes_;
  const bool reasons_;
  const std::vector<int> domains_;
  const std::vector<int> rails_;
  std::vector<int> times_led_;  // by local rank
  std::vector<int> members_;    // by lane
  NodeLeaders result_;
};

}  // namespace

std::optional<LeaderPolicy> parse_leader_policy(std::string_view text) {
  const auto* const found = std::ranges::find(kNames, text);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<LeaderPolicy>(found - kNames.begin());
}

const char* leader_policy_name(LeaderPolicy policy) {
  return kNames[static_cast<std::size_t>(policy)];
}

NodeLeaders elect_leaders(LeaderPolicy policy, std::span<const RankPlace> node, int lanes,
                          Reasons reasons) {
  return Election(policy, node, lanes, reasons).run();
}

int natural_leaders(LeaderPolicy policy, std::span<const RankPlace> node) {
  const std::size_t count = possible(policy, node) == LeaderPolicy::Near
                                ? near_rails_of(node).size()
                                : domains_of(node).size();
  return static_cast<int>(std::clamp<std::size_t>(count, 1, node.size()));
}

}  // namespace allrail::topology
