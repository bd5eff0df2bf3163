#include "lib/model_choice.hpp"

#include <algorithm>
#include <bit>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "coll/recipe.hpp"

namespace allrail {
namespace {

/// Above, the schedules of all ranks are too much for the start of a call.
constexpr int kMostRanks = 1024;
/// With more the puts of a step only wait for each other.
constexpr int kMostPorts = 8;

/// One by one, one for every rail, and to all other nodes at once.
std::set<int> port_counts(int ports, int rails, int nodes) {
  if (ports > 0) return {ports};
  return {1, std::clamp(rails, 1, kMostPorts), std::clamp(nodes - 1, 1, kMostPorts)};
}

struct Candidate {
  std::string algorithm;
  int ports;
  double time_us;
};

/// The fastest one first; of equals the one that was found first.
coll::Selection best_of(std::vector<Candidate> candidates, int leaders, const std::string& file) {
  std::ranges::stable_sort(candidates, {}, &Candidate::time_us);
  const Candidate& best = candidates.front();
  std::string reason =
      fmt::format("by the cost model in {} (ALLRAIL_TUNING_FILE): {:.1f} us", file, best.time_us);
  const auto next = std::ranges::find_if(
      candidates, [&best](const Candidate& other) { return other.algorithm != best.algorithm; });
  if (next != candidates.end()) {
    reason += fmt::format("; next is {} with {:.1f} us", next->algorithm, next->time_us);
  }
  return {best.algorithm, best.ports, leaders, std::move(reason)};
}

}  // namespace

std::unique_ptr<ModelChoice> ModelChoice::of(const TuningFile& file, const Options& settings,
                                             const coll::Roster& roster, int rails) {
  if (!file.model) return nullptr;
  diagnostics::CostModel model = *file.model;
  const double last_rail = model.rail_MBps.back();
  if (rails > 0) model.rail_MBps.resize(static_cast<std::size_t>(rails), last_rail);
  model.local_puts = settings.local_puts;
  return std::unique_ptr<ModelChoice>(
      new ModelChoice(std::move(model), file.path, settings, roster));
}

ModelChoice::ModelChoice(diagnostics::CostModel model, std::string file, const Options& settings,
                         const coll::Roster& roster)
    : model_(std::move(model)),
      file_(std::move(file)),
      segment_bytes_(settings.broadcast_segment_bytes),
      roster_(roster) {}

std::optional<coll::Selection> ModelChoice::choose(coll::Operation operation, std::uint64_t bytes,
                                                   int ports, int leaders) {
  if (roster_.nodes() < 2 || roster_.ranks() > kMostRanks) return std::nullopt;
  const auto plain = coll::operation_of(coll::collective_name(operation));
  const Key key{plain, std::bit_floor(std::max<std::uint64_t>(bytes, 1)), ports, leaders};
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  return known_.emplace(key, evaluate(key)).first->second;
}

std::optional<coll::Selection> ModelChoice::evaluate(const Key& key) const {
  const auto& [operation, bytes, ports, leaders] = key;
  diagnostics::ImaginedJobCall call;
  call.collective = coll::collective_name(operation);
  call.bytes = bytes;
  call.leaders = leaders;
  call.broadcast_segment_bytes = segment_bytes_;
  call.node_of = roster_.map().node_of;
  const auto& switches = roster_.switches();
  const bool knows_leaves = switches != nullptr && switches->leaves() > 1;
  for (const std::string_view algorithm : coll::algorithm_names(operation)) {
    // Without leaf switches in the model or in the job, or with blocks of one size, these are other
    // algorithms by another name.
    const bool needs_leaves = algorithm.starts_with("topology");
    if (needs_leaves && (model_.leaf_size.empty() || !knows_leaves)) continue;
    if (algorithm != coll::allgather::kRingChain) call.algorithms.emplace_back(algorithm);
  }
  std::vector<Candidate> candidates;
  const auto rails = static_cast<int>(model_.rail_MBps.size());
  for (const int count : port_counts(ports, rails, roster_.nodes())) {
    call.ports = count;
    for (const auto& one : diagnostics::simulate(call, model_, diagnostics::Effort::Quick)) {
      if (one.refusal.empty()) candidates.push_back({one.algorithm, count, one.time_us});
    }
  }
  if (candidates.empty()) return std::nullopt;
  return best_of(std::move(candidates), leaders, file_);
}

}  // namespace allrail
