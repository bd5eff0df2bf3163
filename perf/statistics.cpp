#include "perf/statistics.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace allrail::perf {

TimeStatistics join_statistics(Communicator& communicator, std::vector<double>& samples_us) {
  std::sort(samples_us.begin(), samples_us.end());
  const std::size_t count = samples_us.size();
  const auto at = [&](double share) {
    const auto index = static_cast<std::size_t>(std::ceil(share * static_cast<double>(count))) - 1;
    return samples_us[std::min(index, count - 1)];
  };
  const double sum = std::accumulate(samples_us.begin(), samples_us.end(), 0.0);
  const std::array<double, 5> mine = {samples_us.front(), sum / static_cast<double>(count), at(0.5),
                                      at(0.99), samples_us.back()};
  std::vector<double> all(mine.size() * static_cast<std::size_t>(communicator.size()));
  communicator.allgather(mine, all);
  TimeStatistics joined;
  joined.min = all[0];
  for (std::size_t i = 0; i < all.size(); i += mine.size()) {
    joined.min = std::min(joined.min, all[i]);
    joined.avg += all[i + 1] / communicator.size();
    joined.p50 += all[i + 2] / communicator.size();
    joined.p50_slowest_rank = std::max(joined.p50_slowest_rank, all[i + 2]);
    joined.p99 = std::max(joined.p99, all[i + 3]);
    joined.max = std::max(joined.max, all[i + 4]);
  }
  return joined;
}

}  // namespace allrail::perf
