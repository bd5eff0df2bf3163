// Arithmetic that takes a given time, in place of what a user computes.
#pragma once

#include <array>
#include <cstdint>

namespace allrail::perf {

class Computation {
 public:
  /// Finds out how much arithmetic takes about `us` microseconds on this core.
  void calibrate(double us);
  /// One of `parts` equal parts of it. Uses no memory but its own few cache lines.
  void run_part(int parts);
  /// Computes until base::now_ns() is `end_ns`, whatever was calibrated. Yields to nobody, as a
  /// user who computes does not.
  void run_until(std::int64_t end_ns);

 private:
  void run_steps(std::uint64_t steps);

  std::uint64_t steps_ = 0;
  std::array<double, 64> values_{};
};

}  // namespace allrail::perf
