// Where a rank stays that has to share its cpu, if ranks outnumber the cpus that they may run on.
//
// Ranks that wait yield, so to the kernel all of them want to run all the time, whatever they wait
// for. It puts three on one of two cpus and one on the other, or two neighbours apart, and for
// longer than many a row of calls takes it sees nothing to mend.
// The job knows better: it gives every rank a home, as many to each cpu, and neighbours together.
#pragma once

#include <cstdint>

namespace allrail::shm {

class HomeCpu {
 public:
  /// -1: the rank has none.
  explicit HomeCpu(int cpu) noexcept : cpu_(cpu) {}
  /// Others want the cpu that this thread is on. Goes home now and then, if that is elsewhere.
  void crowded(std::int64_t now_ns) noexcept {
    if (cpu_ >= 0 && now_ns >= next_look_ns_) look(now_ns);
  }

 private:
  // The kernel may know of programs that the job does not: a rank that is always found elsewhere
  // goes home less and less often.
  static constexpr std::int64_t kShortestPauseNs = 1'000'000;
  static constexpr std::int64_t kLongestPauseNs = 4'000'000'000;
  void look(std::int64_t now_ns) noexcept;

  int cpu_;
  std::int64_t next_look_ns_ = 0;
  std::int64_t pause_ns_ = kShortestPauseNs;
};

}  // namespace allrail::shm
