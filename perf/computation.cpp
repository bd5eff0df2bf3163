#include "perf/computation.hpp"

#include <algorithm>
#include <limits>

#include "lib/base/clock.hpp"

namespace allrail::perf {

void Computation::run_steps(std::uint64_t steps) {
  for (std::uint64_t step = 0; step < steps; ++step) {
    for (double& value : values_) value = value * 0.999 + 1.0;
    // The compiler may not leave steps out whose values nobody reads.
    asm volatile("" ::: "memory");
  }
}

void Computation::calibrate(double us) {
  constexpr std::int64_t kLongEnoughNs = 200'000;
  std::uint64_t steps = 64;
  double ns_per_step = 0;
  for (std::int64_t took_ns = 0; took_ns < kLongEnoughNs; steps *= 2) {
    // The shortest of some: in the others somebody else had the core.
    took_ns = std::numeric_limits<std::int64_t>::max();
    for (int i = 0; i < 5; ++i) {
      const std::int64_t begin_ns = base::now_ns();
      run_steps(steps);
      took_ns = std::min(took_ns, base::now_ns() - begin_ns);
    }
    ns_per_step = static_cast<double>(took_ns) / static_cast<double>(steps);
  }
  steps_ = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(us * 1000 / ns_per_step));
}

void Computation::run_part(int parts) {
  run_steps(std::max<std::uint64_t>(1, steps_ / static_cast<std::uint64_t>(parts)));
}

void Computation::run_until(std::int64_t end_ns) {
  while (base::now_ns() < end_ns) run_steps(1);
}

}  // namespace allrail::perf
