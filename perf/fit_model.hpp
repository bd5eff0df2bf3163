// From what allrail-bench fit measures to the parameters of the cost model. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/simulation.hpp"

namespace allrail::perf {

/// Of the large puts of a fit.
inline constexpr std::uint64_t kFitLargeBytes = 1ULL << 20;

/// Times of puts between two ranks, each as often as it was measured; all but the last over one
/// rail.
struct PutSamples {
  std::vector<double> half_round_trip_us;  // of small puts
  std::vector<double> post_us;             // the core's part of one
  std::vector<double> arrival_us;          // the core's part of one that is there already
  std::vector<double> small_interval_us;   // per put, of many that follow each other
  std::vector<std::vector<double>> large_interval_us;  // the same of kFitLargeBytes, by rail
};

/// The middle one; 0 of none.
double median(std::vector<double> values);

/// The parameters that puts tell of; all others keep their defaults.
diagnostics::CostModel model_of(const PutSamples& samples);

}  // namespace allrail::perf
