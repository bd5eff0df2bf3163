#include "perf/tuned_rules.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "lib/base/parse.hpp"

namespace allrail::perf {
namespace {

using Json = nlohmann::ordered_json;

// Up to here a call costs what its messages cost, whatever is in them.
constexpr std::uint64_t kNextToNothingBytes = 64;

std::vector<double> fastest_times(std::span<const Candidate> candidates) {
  std::vector<double> fastest = candidates.front().time_us;
  for (const Candidate& candidate : candidates) {
    for (std::size_t size = 0; size < fastest.size(); ++size) {
      fastest[size] = std::min(fastest[size], candidate.time_us[size]);
    }
  }
  return fastest;
}

/// The last byte that is not nearer to `upper` than to `lower`, by ratio.
std::uint64_t last_byte_before(std::uint64_t lower, std::uint64_t upper) {
  const double mean = std::sqrt(static_cast<double>(lower)) * std::sqrt(static_cast<double>(upper));
  return std::clamp(static_cast<std::uint64_t>(mean), lower, upper - 1);
}

Json number_or_range(int least, int most) {
  if (least == most) return least;
  return {{"min", least}, {"max", most}};
}

std::string times_text(const Candidate& candidate, const TunedRange& range,
                       std::span<const std::uint64_t> sizes) {
  std::string text;
  for (std::size_t size = range.first; size <= range.last; ++size) {
    text += fmt::format("{}{:.1f} us at {}", text.empty() ? "" : ", ", candidate.time_us[size],
                        base::format_bytes(sizes[size]));
  }
  return text;
}

Json rule_of(const TunedCollective& collective, const TunedRange& range, const Layout& layout,
             std::optional<int> leaders) {
  const Candidate& candidate = collective.candidates[range.candidate];
  const ByteRange bytes = bytes_of(range, collective.sizes);
  Json rule;
  rule["bytes"] = {{"min", bytes.least}, {"max", bytes.most}};
  rule["ranks"] = layout.ranks;
  rule["nodes"] = layout.nodes;
  rule["ranks_per_node"] = number_or_range(layout.smallest_node, layout.largest_node);
  rule["rails"] = layout.rails;
  rule["algorithm"] = candidate.algorithm;
  rule["ports"] = candidate.ports;
  const bool has_lanes = collective.name == "allgather" || collective.name == "alltoall";
  if (leaders && has_lanes) rule["leaders"] = *leaders;
  rule["comment"] = times_text(candidate, range, collective.sizes);
  return rule;
}

}  // namespace

std::vector<TunedRange> choose_ranges(std::span<const Candidate> candidates, double margin) {
  std::vector<TunedRange> ranges;
  if (candidates.empty()) return ranges;
  const std::vector<double> fastest = fastest_times(candidates);
  std::size_t first = 0;
  while (first < fastest.size()) {
    std::size_t most = 0;
    double least_slowdown = 0;
    std::size_t winner = 0;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      std::size_t end = first;
      double slowdown = 0;
      while (end < fastest.size() && candidates[i].time_us[end] <= (1 + margin) * fastest[end]) {
        slowdown += std::log(candidates[i].time_us[end] / fastest[end]);
        ++end;
      }
      if (end < most || end == first || (end == most && slowdown >= least_slowdown)) continue;
      most = end;
      least_slowdown = slowdown;
      winner = i;
    }
    ranges.push_back({winner, first, most - 1});
    first = most;
  }
  return ranges;
}

ByteRange bytes_of(const TunedRange& range, std::span<const std::uint64_t> sizes) {
  ByteRange bytes{sizes[range.first], sizes[range.last]};
  if (range.first > 0) {
    bytes.least = last_byte_before(sizes[range.first - 1], sizes[range.first]) + 1;
  } else if (bytes.least <= kNextToNothingBytes) {
    bytes.least = 0;
  }
  if (range.last + 1 < sizes.size()) {
    bytes.most = last_byte_before(sizes[range.last], sizes[range.last + 1]);
  }
  return bytes;
}

std::string tuning_text(std::span<const TunedCollective> collectives, const Layout& layout,
                        std::optional<int> leaders,
                        const std::optional<diagnostics::CostModel>& model,
                        const std::string& comment) {
  std::string lists;
  for (const TunedCollective& collective : collectives) {
    std::string rules;
    for (const TunedRange& range : collective.ranges) {
      rules += fmt::format("{}      {}", rules.empty() ? "" : ",\n",
                           rule_of(collective, range, layout, leaders).dump());
    }
    lists += fmt::format("{}    {}: [\n{}\n    ]", lists.empty() ? "" : ",\n",
                         Json(collective.name).dump(), rules);
  }
  std::string parameters;
  if (model) {
    Json object;
    diagnostics::for_parameters(
        *model, [&object](const char* name, const auto& member) { object[name] = member; });
    parameters = ",\n  \"model\": " + object.dump();
  }
  return fmt::format("{{\n  \"format\": 1,\n  \"comment\": {},\n  \"rules\": {{\n{}\n  }}{}\n}}\n",
                     Json(comment).dump(-1, ' ', false, Json::error_handler_t::replace), lists,
                     parameters);
}

}  // namespace allrail::perf
