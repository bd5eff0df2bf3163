#include "perf/bench_fit.hpp"

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <allrail/options.hpp>
#include <fmt/core.h>
#include <sched.h>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/diagnostics.hpp"
#include "perf/bench_put.hpp"
#include "perf/fit_model.hpp"
#include "perf/model_file.hpp"

namespace allrail::perf {
namespace {

constexpr std::uint64_t kSmallBytes = 64;  // a header, what the least put has
constexpr int kInFlight = 16;
constexpr int kRepeats = 31;  // medians of so many
constexpr int kSmallPuts = 512;
constexpr int kLargePuts = 32;

double us_since(std::int64_t begin_ns) {
  return static_cast<double>(base::now_ns() - begin_ns) * 1e-3;
}

template <class Measure>
std::vector<double> samples_of(const Measure& measure) {
  std::vector<double> values;
  for (int i = 0; i < kRepeats; ++i) values.push_back(measure());
  return values;
}

/// Both ranks call all functions in the same order; what they return counts on the first one.
class PutFit {
 public:
  PutFit(diagnostics::PutPair& pair, bool first) : pair_(pair), first_(first) {}

  std::vector<double> half_round_trip_us(int rail) {
    return samples_of([&] {
      const std::int64_t begin = base::now_ns();
      for (int i = 0; i < kInFlight; ++i) {
        if (first_) pair_.put(kSmallBytes, rail);
        pair_.await(kSmallBytes);
        if (!first_) pair_.put(kSmallBytes, rail);
      }
      pair_.flush();
      return us_since(begin) / (2.0 * kInFlight);
    });
  }

  /// The core's part of a put.
  std::vector<double> post_us(int rail) {
    return samples_of([&] {
      const std::int64_t begin = base::now_ns();
      for (int i = 0; first_ && i < kInFlight; ++i) pair_.put(kSmallBytes, rail);
      const double each = us_since(begin) / kInFlight;
      for (int i = 0; !first_ && i < kInFlight; ++i) pair_.await(kSmallBytes);
      finish(true, false);
      return each;
    });
  }

  /// The core's part of puts that are there already when they are awaited.
  std::vector<double> arrival_us(int rail) {
    return samples_of([&] {
      for (int i = 0; !first_ && i < kInFlight; ++i) pair_.put(kSmallBytes, rail);
      const std::int64_t until = base::now_ns() + 2'000'000;
      while (first_ && base::now_ns() < until) {
      }
      const std::int64_t begin = base::now_ns();
      for (int i = 0; first_ && i < kInFlight; ++i) pair_.await(kSmallBytes);
      const double each = us_since(begin) / kInFlight;
      finish(false, true);
      return each;
    });
  }

  /// Per put, of many that follow each other.
  std::vector<double> interval_us(std::uint64_t bytes, int puts, int rail) {
    return samples_of([&] {
      const std::int64_t begin = base::now_ns();
      for (int i = 0; i < puts; ++i) {
        if (first_) {
          pair_.put(bytes, rail);
        } else {
          pair_.await(bytes);
        }
      }
      finish(true, false);
      return us_since(begin) / puts;
    });
  }

 private:
  /// One small put back says that everything has been seen.
  void finish(bool first_sent, bool first_received) {
    pair_.flush();
    if (first_ == first_received) pair_.put(1, -1);
    if (first_ == first_sent) pair_.await(1);
    pair_.flush();
  }

  diagnostics::PutPair& pair_;
  const bool first_;
};

/// Of memory that no cache holds.
double copy_MBps() {
  const std::vector<char> from(64ULL << 20, 'a');
  std::vector<char> to(from.size(), 'b');
  const double us = median(samples_of([&] {
    const std::int64_t begin = base::now_ns();
    std::memcpy(to.data(), from.data(), from.size());
    return us_since(begin);
  }));
  return to.back() == 'a' ? static_cast<double>(from.size()) / us : 0;
}

bool may_use_one_cpu_only() {
  cpu_set_t cpus;
  return ::sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) == 1;
}

/// Half of what a word takes from one thread to another and back.
double flag_us() {
  constexpr int kRounds = 1000;
  constexpr int kLooksBetweenYields = 1000;
  const auto await = [](const std::atomic<int>& flag, int value) {
    for (int looks = 1; flag.load(std::memory_order_acquire) < value; ++looks) {
      if (looks % kLooksBetweenYields == 0) ::sched_yield();
    }
  };
  alignas(64) std::atomic<int> there{0};
  alignas(64) std::atomic<int> back{0};
  std::jthread other([&] {
    for (int i = 1; i <= kRounds * kRepeats; ++i) {
      await(there, i);
      back.store(i, std::memory_order_release);
    }
  });
  int done = 0;
  return median(samples_of([&] {
    const std::int64_t begin = base::now_ns();
    for (int i = 0; i < kRounds; ++i) {
      there.store(++done, std::memory_order_release);
      await(back, done);
    }
    return us_since(begin) / (2.0 * kRounds);
  }));
}

PutSamples measure_puts(diagnostics::PutPair& pair, bool first) {
  PutFit puts(pair, first);
  PutSamples samples;
  const int rail = pair.rails().front();
  puts.half_round_trip_us(rail);  // links are warm now
  samples.half_round_trip_us = puts.half_round_trip_us(rail);
  samples.post_us = puts.post_us(rail);
  samples.arrival_us = puts.arrival_us(rail);
  samples.small_interval_us = puts.interval_us(kSmallBytes, kSmallPuts, rail);
  for (const int one : pair.rails()) {
    samples.large_interval_us.push_back(puts.interval_us(kFitLargeBytes, kLargePuts, one));
  }
  return samples;
}

}  // namespace

void bench_fit(Communicator& communicator, const BenchOptions& options,
               const std::string& command) {
  if (options.json_file.empty()) {
    base::fail(Code::InvalidArgument, "fit writes a file: say --json FILE");
  }
  const int other = rank_of_other_node(communicator, options);
  const bool first = communicator.rank() == 0;
  const auto job = diagnostics::describe_job(communicator);
  communicator.barrier();
  if (first || communicator.rank() == other) {
    diagnostics::CostModel model;
    {
      diagnostics::PutPair pair(communicator, first ? other : 0, kFitLargeBytes);
      model = model_of(measure_puts(pair, first));
    }
    if (first) {
      model.copy_MBps = copy_MBps();
      if (may_use_one_cpu_only()) {
        fmt::print(
            "flag_us stays at {} us: rank 0 may use one cpu only, where two threads take "
            "turns; start it without such a binding\n",
            model.flag_us);
      } else {
        model.flag_us = flag_us();
      }
      model.stripe_bytes = Options::from_environment().stripe_threshold_bytes;
      write_model(options.json_file, model,
                  fmt::format("{}; ranks 0 and {} of {} on {} nodes", command, other, job.ranks,
                              job.nodes));
      fmt::print("parameters of the cost model are in {}: allrail-info simulate ... --model {}\n",
                 options.json_file, options.json_file);
    }
  }
  communicator.barrier();
}

}  // namespace allrail::perf
