#include "lib/simulation.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "coll/imagined_call.hpp"
#include "coll/recipe.hpp"
#include "coll/schedule/simulate.hpp"
#include "lib/base/error.hpp"

namespace allrail::diagnostics {
namespace {

constexpr double kMicro = 1e-6;
constexpr double kMega = 1e6;
// Up to so many ranks the node phase of algorithms over nodes is evaluated step by step.
constexpr int kMostRanksOfNodePhase = 1024;
// What a map of all ranks may cost: above, only calls over nodes, which need none.
constexpr long long kMostRanks = 65536;
constexpr long long kMostNodes = 65536;
constexpr schedule::SimulationLimits kQuick{
    .actions = 50'000, .steps = 500'000, .most_actions = 50'000, .most_steps = 500'000};

/// From MB/s.
double s_per_byte(double rate, const char* name) {
  if (!(rate > 0) || !std::isfinite(rate)) {
    base::fail(Code::InvalidArgument, "{} of the cost model is {}: a rate is above 0", name, rate);
  }
  return 1 / (rate * kMega);
}

double seconds(double time_us, const char* name) {
  if (!(time_us >= 0) || !std::isfinite(time_us)) {
    base::fail(Code::InvalidArgument, "{} of the cost model is {}: a time is not below 0", name,
               time_us);
  }
  return time_us * kMicro;
}

schedule::LeafSwitches switches_of(const CostModel& given) {
  schedule::LeafSwitches switches;
  switches.leaf_nodes = given.leaf_size;
  switches.hop_s = seconds(given.hop_us, "hop_us");
  switches.oversubscription = given.oversubscription;
  switches.uplink_bytes_per_s = given.uplink_MBps * kMega;
  switches.background = given.background;
  const auto refuse = [](bool is_good, const char* name, double value, const char* text) {
    if (is_good) return;
    base::fail(Code::InvalidArgument, "{} of the cost model is {}: {}", name, value, text);
  };
  for (const int size : given.leaf_size) {
    refuse(size >= 1, "leaf_size", size, "a leaf switch has at least one node");
  }
  refuse(given.oversubscription > 0 && std::isfinite(given.oversubscription), "oversubscription",
         given.oversubscription, "it is above 0");
  refuse(given.uplink_MBps >= 0 && std::isfinite(given.uplink_MBps), "uplink_MBps",
         given.uplink_MBps, "it is a rate, or 0");
  refuse(given.background >= 0 && given.background < 1, "background", given.background,
         "it is a share from 0 to below 1");
  return switches;
}

schedule::Model model_of(const CostModel& given) {
  schedule::Model model;
  model.startup_s = seconds(given.message_us, "message_us");
  model.latency_s = seconds(given.latency_us, "latency_us");
  model.post_s = seconds(given.post_us, "post_us");
  model.arrival_s = seconds(given.arrival_us, "arrival_us");
  model.flag_s = seconds(given.flag_us, "flag_us");
  model.rail_owner = given.own_ports ? schedule::RailOwner::Rank : schedule::RailOwner::Node;
  model.rail_s_per_byte.clear();
  for (const double rate : given.rail_MBps) {
    model.rail_s_per_byte.push_back(s_per_byte(rate, "rail_MBps"));
  }
  model.stripe_bytes = given.stripe_bytes;
  model.copy_s_per_byte = s_per_byte(given.copy_MBps, "copy_MBps");
  if (given.memory_MBps != 0) {
    model.memory_s_per_byte = s_per_byte(given.memory_MBps, "memory_MBps");
  }
  model.local_puts_by_rail = given.local_puts == "rail";
  model.domains = given.domains;
  model.rail_domain = given.rail_domain;
  model.far_factor = 1 / given.far_share;
  model.switches = switches_of(given);
  if (given.rail_MBps.empty() || (given.local_puts != "rail" && given.local_puts != "copy")) {
    base::fail(Code::InvalidArgument,
               "a cost model has a rate for at least one rail, and local_puts is copy or rail");
  }
  if (given.domains < 1 || given.rail_domain < 0 || given.rail_domain >= given.domains) {
    base::fail(Code::InvalidArgument,
               "a node of the cost model has domains, of which rail_domain {} is one of {}",
               given.rail_domain, given.domains);
  }
  if (!(given.far_share > 0)) {
    base::fail(Code::InvalidArgument, "far_share of the cost model is {}: it is above 0",
               given.far_share);
  }
  return model;
}

/// Blocks of ranks on nodes that are alike.
schedule::NodeMap even_map(int nodes, int ranks_per_node) {
  std::vector<int> node_of;
  node_of.reserve(static_cast<std::size_t>(nodes) * static_cast<std::size_t>(ranks_per_node));
  for (int node = 0; node < nodes; ++node) node_of.insert(node_of.end(), ranks_per_node, node);
  return schedule::NodeMap(std::move(node_of));
}

class Simulator {
 public:
  Simulator(const ImaginedJobCall& call, const CostModel& model, Effort effort)
      : call_(call),
        model_(model_of(model)),
        limits_(effort == Effort::Quick ? kQuick : schedule::SimulationLimits{}),
        ranks_(call.node_of.empty() ? static_cast<long long>(call.nodes) * call.ranks_per_node
                                    : static_cast<long long>(call.node_of.size())) {
    if (call.nodes < 1 || call.ranks_per_node < 1 || call.nodes > kMostNodes ||
        ranks_ > kMostNodes * schedule::kMostLanes * 4 || call.root < 0 || call.root >= ranks_) {
      base::fail(Code::InvalidArgument,
                 "a job of {} ranks on {} nodes and root {} cannot be simulated", ranks_,
                 call.node_of.empty() ? call.nodes : schedule::NodeMap(call.node_of).nodes(),
                 call.root);
    }
  }

  SimulatedCall run(const std::string& algorithm) const {
    SimulatedCall result;
    result.algorithm = algorithm;
    coll::ImaginedCall call;
    call.operation = coll::operation_of(call_.collective);
    call.algorithm = algorithm;
    call.bytes = call_.bytes;
    call.root = call_.root;
    call.ports = call_.ports;
    call.leaders = call_.leaders;
    call.segment_bytes = call_.broadcast_segment_bytes;
    try {
      if (ranks_ > kMostRanksOfNodePhase && is_over_nodes(call) && call_.node_of.empty() &&
          call_.ranks_per_node > 1) {
        evaluate_leaders(call, result);
      } else {
        evaluate_all(call, result);
      }
    } catch (const std::length_error& error) {
      result.refusal = error.what();
    } catch (const std::invalid_argument& error) {
      result.refusal = error.what();
    }
    return result;
  }

 private:
  static bool is_over_nodes(const coll::ImaginedCall& call) {
    coll::ImaginedCall any = call;
    any.root = 0;
    return coll::ImaginedSchedules(any, even_map(1, 1)).is_over_nodes();
  }

  void evaluate_all(const coll::ImaginedCall& call, SimulatedCall& result) const {
    if (ranks_ > kMostRanks) {
      throw std::length_error("an algorithm over ranks is simulated up to " +
                              std::to_string(kMostRanks) + " ranks");
    }
    auto map = call_.node_of.empty() ? even_map(call_.nodes, call_.ranks_per_node)
                                     : schedule::NodeMap(call_.node_of);
    const int nodes = map.nodes();
    const coll::ImaginedSchedules schedules(call, std::move(map), leaves(nodes));
    note(schedules, {}, result);
  }

  void evaluate_leaders(const coll::ImaginedCall& call, SimulatedCall& result) const {
    if (call.algorithm.ends_with("-point-to-point")) {
      throw std::length_error(
          "its groups exchange among themselves, which has no closed form: up "
          "to " +
          std::to_string(kMostRanksOfNodePhase) + " ranks");
    }
    const coll::LeadersOnly reduced = coll::leaders_only(call, call_.ranks_per_node);
    coll::ImaginedSchedules schedules(reduced.call, even_map(call_.nodes, reduced.ranks_per_node),
                                      leaves(call_.nodes));
    schedules.stand_for_several();
    note(schedules, reduced.phase, result);
    result.evaluation += ", node phase in closed form";
  }

  /// Of every node, as the model has them.
  std::shared_ptr<const schedule::Switches> leaves(int nodes) const {
    const std::vector<int>& sizes = model_.switches.leaf_nodes;
    schedule::Switches switches;
    switches.leaf_of = call_.leaf_of;
    switches.chassis_of = call_.chassis_of;
    if (sizes.empty() && switches.leaf_of.empty()) return nullptr;
    for (int leaf = 0; static_cast<int>(switches.leaf_of.size()) < nodes; ++leaf) {
      const int size = sizes[std::min(static_cast<std::size_t>(leaf), sizes.size() - 1)];
      for (int node = 0; node < size && static_cast<int>(switches.leaf_of.size()) < nodes; ++node) {
        switches.leaf_of.push_back(leaf);
      }
    }
    return std::make_shared<const schedule::Switches>(std::move(switches));
  }

  void note(const coll::ImaginedSchedules& schedules, const schedule::NodePhase& phase,
            SimulatedCall& result) const {
    const auto simulation = schedule::simulate(
        schedules.map(), [&](int rank) { return schedules.of(rank); }, model_, schedules.root(),
        phase, limits_);
    result.time_us = simulation.seconds / kMicro;
    result.ranks_evaluated = simulation.ranks_evaluated;
    const bool leads = schedules.map().ranks() != ranks_;
    const std::string who = leads ? "leaders" : "ranks";
    if (simulation.symmetry == schedule::Symmetry::None) {
      result.evaluation = "all " + std::to_string(simulation.ranks_evaluated) + " " + who;
    } else {
      result.evaluation = std::to_string(simulation.ranks_evaluated) + " of " +
                          std::to_string(schedules.map().ranks()) + " " + who +
                          ", the others do the same";
    }
  }

  const ImaginedJobCall& call_;
  const schedule::Model model_;
  const schedule::SimulationLimits limits_;
  const long long ranks_;
};

}  // namespace

void check_model(const CostModel& model) { model_of(model); }

std::vector<SimulatedCall> simulate(const ImaginedJobCall& call, const CostModel& model,
                                    Effort effort) {
  const Simulator simulator(call, model, effort);
  std::vector<SimulatedCall> results;
  for (const std::string& algorithm : call.algorithms) results.push_back(simulator.run(algorithm));
  return results;
}

}  // namespace allrail::diagnostics
