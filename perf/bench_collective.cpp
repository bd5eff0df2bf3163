#include "perf/bench_collective.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "lib/base/clock.hpp"
#include "lib/base/parse.hpp"
#include "lib/diagnostics.hpp"
#include "perf/arrivals.hpp"
#include "perf/blocks.hpp"
#include "perf/computation.hpp"
#include "perf/progress.hpp"
#include "perf/workload.hpp"

namespace allrail::perf {
namespace {

constexpr double kSecondsPerRow = 0.5;
constexpr int kBatches = 11;  // streaming: back-to-back batches, of which each gives one time

using Memory = BenchOptions::Memory;

diagnostics::ResultMemory result_memory(Memory kind) {
  return kind == Memory::Buffer ? diagnostics::ResultMemory::Buffer
         : kind == Memory::Node ? diagnostics::ResultMemory::NodeBuffer
                                : diagnostics::ResultMemory::Ordinary;
}

class CollectiveRow {
 public:
  CollectiveRow(Communicator& communicator, const BenchOptions& options, std::uint64_t bytes,
                const std::string& algorithm, Progress& progress)
      : communicator_(communicator),
        options_(options),
        progress_(progress),
        bytes_(bytes),
        call_(call_options(options, algorithm)),
        workload_(make_workload(communicator, options, bytes, call_)) {
    if (options.overlap) plan_.emplace(workload_->plan());
  }

  Row run(const Context& context) {
    Row row;
    row.collective = options_.what;
    if (is_v_form(options_.what)) row.blocks = shape_name(options_.blocks);
    row.bytes_per_rank = bytes_;
    row.bytes_total = workload_->bytes_total();
    row.checked = checks();
    row.iterations = warm_up();
    const auto choice = choose();
    if (checks()) row.wrong_bytes += check();
    std::vector<double> samples = measure(row);
    row.algorithm = choice.algorithm;
    // Barriers may have spread meanwhile that the rails are fast, or are not.
    if (const auto last = choose().algorithm; last != choice.algorithm) {
      row.algorithm += ">" + last;  // one word: tables are read by columns
    }
    row.ports = choice.ports;
    row.leaders = choice.leaders;
    row.time_us = join_statistics(communicator_, samples);
    if (options_.overlap) row.overlap = overlapped(row.iterations, row.time_us.p50);
    if (checks()) row.wrong_bytes += check();
    // nccl-tests: algorithm bandwidth is the call's size over time.
    row.algbw_GBps = static_cast<double>(row.bytes_total) / row.time_us.avg / 1000;
    row.busbw_GBps = row.algbw_GBps * workload_->bus_factor();
    if (!options_.rail_rates_mbit.empty() && context.nodes > 1 && row.bytes_total > 0) {
      const auto& time_us = row.time_us;
      row.rail_limit_percent =
          percent_of_limit(workload_->ranks_end_alike() ? time_us.p50 : time_us.p50_slowest_rank);
    }
    return row;
  }

 private:
  bool checks() const { return options_.check && workload_->can_be_checked(); }

  static CallOptions call_options(const BenchOptions& options, const std::string& algorithm) {
    CallOptions call;
    call.algorithm = algorithm == "auto" ? "" : algorithm;
    call.ports = options.ports;
    call.leaders = options.leaders;
    return call;
  }

  diagnostics::Choice choose() const {
    return diagnostics::choose(communicator_, options_.what, workload_->block_bytes(), call_,
                               result_memory(options_.memory));
  }

  void call() {
    if (plan_) {
      plan_->start();
      plan_->wait();
    } else {
      workload_->call();
    }
  }

  void compute() {
    for (int i = 0; i < options_.overlap_tests; ++i) computation_.run_part(options_.overlap_tests);
  }

  void call_and_compute() {
    plan_->start();
    bool ended = false;
    for (int i = 0; i < options_.overlap_tests; ++i) {
      computation_.run_part(options_.overlap_tests);
      if (!ended) ended = plan_->test();
    }
    if (!ended) plan_->wait();
  }

  /// `call_us` is what a call takes alone, the same number on all ranks.
  Overlap overlapped(int iterations, double call_us) {
    computation_.calibrate(call_us);
    Overlap overlap;
    overlap.tests = options_.overlap_tests;
    auto samples = timed(iterations, [this] { compute(); });
    overlap.compute_us = join_statistics(communicator_, samples).p50;
    samples = timed(iterations, [this] { call_and_compute(); });
    overlap.both_us = join_statistics(communicator_, samples).p50;
    overlap.percent = overlap_percent(call_us, overlap.compute_us, overlap.both_us);
    return overlap;
  }

  /// Returns how many timed calls to make; the same on all ranks.
  int warm_up() {
    const int least = options_.warmup >= 0 ? options_.warmup : 3;
    for (int i = 0; i < least; ++i) call();
    double seconds = 0;
    int calls = 0;
    while (options_.iterations == 0 && options_.warmup < 0 && calls < 1000 && seconds < 0.05) {
      communicator_.barrier();
      const std::int64_t begin = base::now_ns();
      for (int i = 0; i < 5; ++i) call();
      calls += 5;
      double mine = static_cast<double>(base::now_ns() - begin) * 1e-9;
      std::vector<double> all(static_cast<std::size_t>(communicator_.size()));
      communicator_.allgather(std::span(&mine, 1), all);
      seconds += *std::ranges::max_element(all);
    }
    if (options_.iterations > 0) return options_.iterations;
    if (calls == 0) return 20;
    // A timed call lasts as long as the last rank makes it.
    const double per_call =
        seconds / calls + static_cast<double>(options_.skew_ns.value_or(0)) * 1e-9;
    return std::clamp(static_cast<int>(kSecondsPerRow / per_call), 20, 10'000);
  }

  std::vector<double> measure(Row& row) {
    if (options_.skew_ns) return skewed(row);
    if (options_.mode == Mode::Streaming) return streaming(row.iterations);
    return timed(row.iterations, [this] { call(); });
  }

  /// Microseconds of each call from the arrival of this rank on. What the arrivals of all ranks
  /// make of them is the row's.
  std::vector<double> skewed(Row& row) {
    const auto us_between = [](std::int64_t begin_ns, std::int64_t end_ns) {
      return static_cast<double>(end_ns - begin_ns) * 1e-3;
    };
    std::vector<double> samples;
    ArrivalTimes times;
    for (auto* const each : {&samples, &times.arrivals_us, &times.ends_us}) {
      each->reserve(static_cast<std::size_t>(row.iterations));
    }
    for (int i = 0; i < row.iterations; ++i) {
      const std::int64_t delay_ns =
          arrival_delay_ns(options_.skew_seed, communicator_.rank(), i, *options_.skew_ns);
      communicator_.barrier();
      const std::int64_t begin = base::now_ns();
      computation_.run_until(begin + delay_ns);
      const std::int64_t arrival = base::now_ns();
      call();
      const std::int64_t end = base::now_ns();
      samples.push_back(us_between(arrival, end));
      times.arrivals_us.push_back(us_between(begin, arrival));
      times.ends_us.push_back(us_between(begin, end));
      progress_.calls(i + 1, row.iterations);
    }
    row.skew = join_arrivals(communicator_, std::move(times));
    row.skew->most_us = us_between(0, *options_.skew_ns);
    row.skew->seed = options_.skew_seed;
    return samples;
  }

  /// Microseconds of each time, a barrier before it.
  template <class Work>
  std::vector<double> timed(int iterations, const Work& work) {
    std::vector<double> samples;
    samples.reserve(static_cast<std::size_t>(iterations));
    for (int i = 0; i < iterations; ++i) {
      communicator_.barrier();
      const std::int64_t begin = base::now_ns();
      work();
      samples.push_back(static_cast<double>(base::now_ns() - begin) * 1e-3);
      progress_.calls(i + 1, iterations);
    }
    return samples;
  }

  std::vector<double> streaming(int& iterations) {
    const int per_batch = std::max(1, iterations / kBatches);
    iterations = per_batch * kBatches;
    std::vector<double> samples;
    for (int batch = 0; batch < kBatches; ++batch) {
      communicator_.barrier();
      const std::int64_t begin = base::now_ns();
      for (int i = 0; i < per_batch; ++i) call();
      communicator_.barrier();
      samples.push_back(static_cast<double>(base::now_ns() - begin) * 1e-3 / per_batch);
      progress_.calls((batch + 1) * per_batch, iterations);
    }
    return samples;
  }

  /// One more call with fresh bytes, every one of them looked at. The sum over all ranks.
  std::uint64_t check() {
    workload_->prepare(++seed_);
    if (plan_) {
      call_and_compute();
    } else {
      call();
    }
    const std::uint64_t wrong = workload_->wrong(seed_);
    std::vector<std::uint64_t> all(static_cast<std::size_t>(communicator_.size()));
    communicator_.allgather(std::span(&wrong, 1), all);
    return std::accumulate(all.begin(), all.end(), std::uint64_t{0});
  }

  /// Of the busiest node: nodes may have different numbers of ranks. Negative where a single block
  /// stays on its node, so that rails limit nothing. Collective.
  double percent_of_limit(double time_us) {
    const std::uint64_t mine = workload_->rail_bytes();
    std::vector<std::uint64_t> all(static_cast<std::size_t>(communicator_.size()));
    communicator_.allgather(std::span(&mine, 1), all);
    const auto must_pass = static_cast<double>(*std::ranges::max_element(all));
    if (must_pass == 0) return -1;
    const double rate =
        std::accumulate(options_.rail_rates_mbit.begin(), options_.rail_rates_mbit.end(), 0.0) /
        8;  // bytes per microsecond
    return must_pass / rate / time_us * 100;
  }

  Communicator& communicator_;
  const BenchOptions& options_;
  Progress& progress_;
  std::uint64_t bytes_;
  const CallOptions call_;
  const std::unique_ptr<Workload> workload_;
  std::optional<Plan> plan_;  // with --overlap: all calls are its starts
  Computation computation_;
  std::uint64_t seed_ = 0;
};

}  // namespace

std::vector<Row> bench_collective(Communicator& communicator, const BenchOptions& options,
                                  const Context& context) {
  const bool speaks = communicator.rank() == 0;
  std::vector<Row> rows;
  const auto print_top = options.overlap   ? print_overlap_header
                         : options.skew_ns ? print_skew_header
                                           : print_header;
  const auto print = options.overlap   ? print_overlap_row
                     : options.skew_ns ? print_skew_row
                                       : print_row;
  if (speaks) print_top(context, options);
  Progress progress(speaks, options.algorithms.size() * options.sizes.size());
  for (const std::string& algorithm : options.algorithms) {
    for (const std::uint64_t bytes : options.sizes) {
      progress.begin_row(
          fmt::format("{} of {} bytes by {}", options.what, base::format_bytes(bytes), algorithm));
      CollectiveRow row(communicator, options, bytes, algorithm, progress);
      rows.push_back(row.run(context));
      progress.end_row();
      if (speaks) print(rows.back());
    }
  }
  return rows;
}

}  // namespace allrail::perf
