#include "perf/fit_model.hpp"

#include <algorithm>

namespace allrail::perf {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

diagnostics::CostModel model_of(const PutSamples& samples) {
  diagnostics::CostModel model;
  const double there_us = median(samples.half_round_trip_us);
  model.post_us = median(samples.post_us);
  model.arrival_us = median(samples.arrival_us);
  // Many at once can cost a core more each than one alone does: together no more than a round trip.
  const double both_us = model.post_us + model.arrival_us;
  if (both_us > there_us) {
    model.post_us *= there_us / both_us;
    model.arrival_us *= there_us / both_us;
  }
  const double interval_us = median(samples.small_interval_us);
  // Puts that follow each other take as long as the slowest of core, rail and core.
  const double cores_us = std::max(model.post_us, model.arrival_us);
  model.message_us = interval_us > cores_us ? interval_us : 0;
  model.latency_us = std::max(0.0, there_us - model.post_us - model.message_us - model.arrival_us);
  model.hop_us = 0;  // a part of the latency
  model.rail_MBps.clear();
  for (const std::vector<double>& intervals_us : samples.large_interval_us) {
    const double large_us = median(intervals_us) - model.message_us;
    model.rail_MBps.push_back(static_cast<double>(kFitLargeBytes) / std::max(large_us, 1e-3));
  }
  return model;
}

}  // namespace allrail::perf
