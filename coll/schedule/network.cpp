#include "coll/schedule/network.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace allrail::schedule {
namespace {

void check(const Model& model) {
  const LeafSwitches& switches = model.switches;
  bool fits = model.rails() > 0 && model.rails() < 256 && model.domains > 0 &&
              model.rail_domain >= 0 && model.rail_domain < model.domains &&
              switches.oversubscription > 0 && switches.background >= 0 && switches.background < 1;
  for (const int nodes : switches.leaf_nodes) fits = fits && nodes > 0;
  if (!fits) {
    throw std::invalid_argument(
        "a cost model has rails, domains of which one has the rails, leaf switches with nodes, an "
        "oversubscription above 0, and background traffic from 0 to below 1");
  }
}

}  // namespace

Network::Network(const NodeMap& map, const Model& model) : map_(map), model_(model) {
  check(model);
  const std::vector<int>& sizes = model.switches.leaf_nodes;
  for (int node = 0, left = 0; node < map.nodes(); ++node, --left) {
    if (left == 0) {
      left = sizes.empty() ? map.nodes() : sizes[std::min(ways_.size(), sizes.size() - 1)];
      ways_.push_back(way_of(left));
    }
    leaf_of_.push_back(static_cast<int>(ways_.size()) - 1);
  }
  const auto owners =
      static_cast<std::size_t>(model.rail_owner == RailOwner::Rank ? map.ranks() : map.nodes());
  sending_.assign(owners * model.rail_s_per_byte.size(), 0);
  receiving_ = sending_;
}

Network::Way Network::way_of(int nodes) const {
  constexpr double kMostCables = 256;
  double node_rate = 0;
  double rail_rate = 0;
  for (const double rail : model_.rail_s_per_byte) {
    node_rate += rail > 0 ? 1 / rail : 0;
    rail_rate = std::max(rail_rate, rail > 0 ? 1 / rail : 0);
  }
  const LeafSwitches& switches = model_.switches;
  const double rate = switches.uplink_bytes_per_s > 0
                          ? switches.uplink_bytes_per_s
                          : nodes * node_rate / switches.oversubscription;
  Way way;
  const double cables =
      rail_rate > 0 ? std::clamp(std::round(rate / rail_rate), 1.0, kMostCables) : 1;
  way.s_per_byte = rate > 0 ? cables / (rate * (1 - switches.background)) : 0;
  way.climbing.assign(static_cast<std::size_t>(cables), 0);
  way.descending = way.climbing;
  return way;
}

double Network::serve(double& free, double now, double duration) {
  const double begin = std::max(now, free);
  free = begin + duration;
  return begin;
}

std::size_t Network::owner(int rank) const {
  return static_cast<std::size_t>(
      model_.rail_owner == RailOwner::Rank ? rank : map_.node_of[static_cast<std::size_t>(rank)]);
}

double& Network::sending_rail(const Piece& piece) {
  return sending_[owner(piece.from) * model_.rail_s_per_byte.size() + piece.rail];
}

/// A node's rail receives from the rail of the same number. What port of a rank receives does not
/// matter: the next free one.
double& Network::receiving_rail(const Piece& piece) {
  const std::size_t first = owner(piece.to) * model_.rail_s_per_byte.size();
  if (model_.rail_owner == RailOwner::Node) return receiving_[first + piece.rail];
  const auto ports = receiving_.begin() + static_cast<std::ptrdiff_t>(first);
  return *std::min_element(ports, ports + model_.rails());
}

double Network::far(const Piece& piece) const {
  const auto rank = static_cast<std::size_t>(piece.to);
  const int domain =
      domain_of(model_, map_.local_rank_of[rank], map_.node_size(map_.node_of[rank]));
  return domain == model_.rail_domain ? 1 : model_.far_factor;
}

double Network::send(Piece& piece, double now) {
  const double duration =
      (piece.goes_on ? 0 : model_.startup_s) + piece.bytes * model_.rail_s_per_byte[piece.rail];
  const double begin = serve(sending_rail(piece), now, duration);
  piece.tail_s = begin + duration;
  return begin + model_.switches.hop_s;
}

double Network::pass(std::vector<double>& cables, double s_per_byte, Piece& piece,
                     double now) const {
  const double duration = piece.bytes * s_per_byte;
  const double begin = serve(*std::ranges::min_element(cables), now, duration);
  piece.tail_s = std::max(piece.tail_s + model_.switches.hop_s, begin + duration);
  return begin + model_.switches.hop_s;
}

Network::Way& Network::way_of_rank(int rank) {
  const int leaf = leaf_of(map_.node_of[static_cast<std::size_t>(rank)]);
  return ways_[static_cast<std::size_t>(leaf)];
}

double Network::climb(Piece& piece, double now) {
  Way& way = way_of_rank(piece.from);
  return pass(way.climbing, way.s_per_byte, piece, now);
}

double Network::descend(Piece& piece, double now) {
  Way& way = way_of_rank(piece.to);
  return pass(way.descending, way.s_per_byte, piece, now);
}

double Network::receive(Piece& piece, double now) {
  const double head = now + model_.latency_s;
  const double duration = (piece.goes_on ? 0 : model_.startup_s) +
                          piece.bytes * model_.rail_s_per_byte[piece.rail] * far(piece);
  const double begin = serve(receiving_rail(piece), head, duration);
  return std::max(piece.tail_s + model_.switches.hop_s + model_.latency_s, begin + duration);
}

}  // namespace allrail::schedule
