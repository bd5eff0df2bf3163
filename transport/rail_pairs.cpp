#include "transport/rail_pairs.hpp"

#include <algorithm>
#include <cstdlib>
#include <tuple>

namespace allrail::transport {
namespace {

/// Two ends might be in one subnet.
bool share_subnet(const RailEnd& one, const RailEnd& other) {
  return one.network == other.network && same_subnet(one.subnet, other.subnet);
}

bool has_partner(const RailEnd& one, std::span<const RailEnd> others) {
  return std::ranges::any_of(others, [&](const RailEnd& o) { return share_subnet(one, o); });
}

/// The place of `ends[index]` among those that `counted` accepts: faster ones first, so that fast
/// rails meet fast ones, then in the host's order.
template <class Counted>
int place_among(std::span<const RailEnd> ends, int index, Counted counted) {
  int place = 0;
  const std::uint32_t rate_mbit = ends[static_cast<std::size_t>(index)].rate_mbit;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const bool before = ends[i].rate_mbit > rate_mbit ||
                        (ends[i].rate_mbit == rate_mbit && static_cast<int>(i) < index);
    place += before && counted(ends[i]) ? 1 : 0;
  }
  return place;
}

/// Pairs are tried by rising rank: how likely, how far apart their places, then in order.
struct Ranked {
  int likelihood = 0;
  int apart = 0;
  int first_place = 0;
  RailPair pair;

  auto key() const { return std::tuple(likelihood, apart, first_place, pair.lower, pair.higher); }
};

Ranked rank_pair(const RailEnds& ends, RailPair pair) {
  const RailEnd& lower = ends.lower[static_cast<std::size_t>(pair.lower)];
  const RailEnd& higher = ends.higher[static_cast<std::size_t>(pair.higher)];
  Ranked ranked;
  ranked.pair = pair;
  int lower_place = 0;
  int higher_place = 0;
  if (share_subnet(lower, higher)) {
    const auto same = [&](const RailEnd& one) { return share_subnet(one, lower); };
    lower_place = place_among(ends.lower, pair.lower, same);
    higher_place = place_among(ends.higher, pair.higher, same);
  } else {
    const bool both_alone = !has_partner(lower, ends.higher) && !has_partner(higher, ends.lower);
    ranked.likelihood = both_alone ? 1 : 2;
    const auto alike_in = [&](std::span<const RailEnd> others) {
      return [&lower, others, both_alone](const RailEnd& one) {
        return one.network == lower.network && (!both_alone || !has_partner(one, others));
      };
    };
    lower_place = place_among(ends.lower, pair.lower, alike_in(ends.higher));
    higher_place = place_among(ends.higher, pair.higher, alike_in(ends.lower));
  }
  ranked.apart = std::abs(lower_place - higher_place);
  ranked.first_place = std::min(lower_place, higher_place);
  return ranked;
}

bool can_link(const RailEnds& ends, RailPair pair) {
  return pair.lower < static_cast<int>(ends.lower.size()) &&
         pair.higher < static_cast<int>(ends.higher.size()) &&
         ends.lower[static_cast<std::size_t>(pair.lower)].network ==
             ends.higher[static_cast<std::size_t>(pair.higher)].network;
}

std::vector<RailPair> pairs_wanted(const RailEnds& ends, const WantedPair& wanted) {
  std::vector<RailPair> pairs;
  for (int lower = 0; lower < static_cast<int>(ends.lower.size()); ++lower) {
    for (int higher = 0; higher < static_cast<int>(ends.higher.size()); ++higher) {
      const RailEnd& one = ends.lower[static_cast<std::size_t>(lower)];
      const RailEnd& other = ends.higher[static_cast<std::size_t>(higher)];
      const bool straight =
          is_named(one, lower, wanted.first) && is_named(other, higher, wanted.second);
      const bool turned =
          is_named(one, lower, wanted.second) && is_named(other, higher, wanted.first);
      if ((straight || turned) && can_link(ends, {lower, higher})) pairs.push_back({lower, higher});
    }
  }
  return pairs;
}

}  // namespace

const char* network_name(Network network) {
  switch (network) {
    case Network::InfiniBand:
      return "InfiniBand";
    case Network::RoceV1:
      return "RoCE v1";
    case Network::RoceV2Ipv4:
      return "RoCE v2 over IPv4";
    case Network::RoceV2Ipv6:
      return "RoCE v2 over IPv6";
    case Network::TcpIpv4:
      return "TCP over IPv4";
    case Network::TcpIpv6:
      break;
  }
  return "TCP over IPv6";
}

Subnet make_subnet(const NetworkAddress& address, int bits) {
  Subnet subnet;
  subnet.bits = static_cast<std::uint8_t>(bits);
  for (int i = 0; i < 16; ++i) {
    const int kept = std::clamp(bits - 8 * i, 0, 8);
    const auto index = static_cast<std::size_t>(i);
    subnet.prefix[index] = static_cast<std::uint8_t>(address[index] & (0xFF00 >> kept));
  }
  return subnet;
}

bool same_subnet(const Subnet& one, const Subnet& other) {
  return one.bits != 0 && one.bits == other.bits && one.prefix == other.prefix;
}

bool is_named(const RailEnd& end, int place, const std::string& name) {
  // A device alone means its first port, as in ALLRAIL_RAILS.
  return end.name == name || end.name == name + ":1" || std::to_string(place) == name;
}

std::vector<RailPair> pair_rails(const RailEnds& ends, std::span<const WantedPair> wanted) {
  std::vector<RailPair> pairs;
  for (const WantedPair& one : wanted) {
    for (const RailPair& pair : pairs_wanted(ends, one)) {
      if (std::ranges::find(pairs, pair) == pairs.end()) pairs.push_back(pair);
    }
  }
  if (!wanted.empty()) return pairs;
  std::vector<Ranked> ranked;
  for (int lower = 0; lower < static_cast<int>(ends.lower.size()); ++lower) {
    for (int higher = 0; higher < static_cast<int>(ends.higher.size()); ++higher) {
      const RailPair pair{lower, higher};
      if (can_link(ends, pair)) ranked.push_back(rank_pair(ends, pair));
    }
  }
  std::ranges::sort(ranked, {}, &Ranked::key);
  for (const Ranked& one : ranked) pairs.push_back(one.pair);
  return pairs;
}

}  // namespace allrail::transport
