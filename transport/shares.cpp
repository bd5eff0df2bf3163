#include "transport/shares.hpp"

#include <algorithm>

namespace allrail::transport {

namespace {

// How far shares follow from one put: at first as far as it says, later so little that the moment
// at which a process was scheduled does not decide. What a shaper saved up comes into the times of
// several puts: without a correction that is gone with the next put shares would swing.
constexpr double kShareGain = 0.05;
constexpr double kShareCorrection = 0.3;
constexpr double kFirstPuts = 4;
constexpr int kManyPuts = 1000;  // more are not counted: the gain has long been at its least

}  // namespace

/// Whether all that may take chunks have weights, and there are two of them. Where one has none yet
/// all begin anew: what the weights of the others have become is no rate.
bool Shares::begin(std::span<const Part> parts) {
  int usable = 0;
  bool is_new = false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].usable) continue;
    if (parts[i].bytes_per_second <= 0) return false;
    is_new = is_new || weights_[i] <= 0;
    ++usable;
  }
  if (usable < 2) return false;
  if (!is_new) return true;
  puts_ = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].usable) weights_[i] = parts[i].bytes_per_second;
  }
  return true;
}

bool Shares::one_chunk_less_is_better(std::span<const Part> parts, std::size_t latest) const {
  const auto latest_ns = static_cast<double>(parts[latest].took_ns);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    if (!part.usable || i == latest) continue;
    auto chunk_ns = static_cast<double>(part.took_ns) / std::max(part.chunks, 1U);
    if (part.chunks == 0) {
      // Neither the weight nor the rate is sure for a rail that took nothing: the better one tells.
      const double by_weight = weights_[latest] / weights_[i];
      const double by_rate = parts[latest].bytes_per_second / part.bytes_per_second;
      chunk_ns = latest_ns / parts[latest].chunks * std::min(by_weight, by_rate);
    }
    if (static_cast<double>(part.took_ns) + chunk_ns < latest_ns) return true;
  }
  return false;
}

void Shares::completed(std::span<const Part> parts) {
  if (!begin(parts)) return;
  std::size_t latest = 0;
  double sum_ns = 0;
  double sum_of_weights = 0;
  int usable = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].usable) continue;
    if (parts[i].took_ns > parts[latest].took_ns || !parts[latest].usable) latest = i;
    sum_ns += static_cast<double>(parts[i].took_ns);
    sum_of_weights += weights_[i];
    ++usable;
  }
  if (puts_ < kManyPuts) ++puts_;
  corrections_.fill(1);
  if (parts[latest].chunks == 0 || !one_chunk_less_is_better(parts, latest)) return;
  const double gain = std::max(kShareGain, 1.0 / (1.0 + puts_ / kFirstPuts));
  double sum_after = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].usable) continue;
    const double late = (static_cast<double>(parts[i].took_ns) - sum_ns / usable) /
                        static_cast<double>(parts[latest].took_ns);
    weights_[i] *= 1 - gain * late;
    corrections_[i] = 1 - kShareCorrection * late;
    sum_after += weights_[i];
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].usable) weights_[i] *= sum_of_weights / sum_after;
  }
}

}  // namespace allrail::transport
