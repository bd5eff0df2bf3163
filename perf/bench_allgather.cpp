#include "perf/bench_allgather.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

#include <fmt/core.h>
#include <unistd.h>

#include "lib/base/clock.hpp"
#include "lib/base/parse.hpp"
#include "lib/diagnostics.hpp"
#include "perf/pattern.hpp"

namespace allrail::perf {
namespace {

constexpr double kSecondsPerRow = 0.5;
constexpr int kBatches = 11;  // streaming: back-to-back batches, of which each gives one time

using Memory = BenchOptions::Memory;

/// Memory of any kind.
class BenchMemory {
 public:
  BenchMemory(Communicator& communicator, Memory kind, std::uint64_t bytes) : kind_(kind) {
    if (kind == Memory::Buffer) buffer_ = communicator.allocate<std::byte>(bytes);
    if (kind == Memory::Node) node_buffer_ = communicator.allocate_node_shared<std::byte>(bytes);
    if (kind == Memory::Ordinary) ordinary_.resize(bytes);
  }
  std::span<std::byte> bytes() {
    if (kind_ == Memory::Node) return node_buffer_;
    if (kind_ == Memory::Buffer) return buffer_;
    return ordinary_;
  }

 private:
  Memory kind_;
  std::vector<std::byte> ordinary_;
  Buffer<std::byte> buffer_;
  NodeBuffer<std::byte> node_buffer_;
};

diagnostics::ResultMemory result_memory(Memory kind) {
  return kind == Memory::Buffer ? diagnostics::ResultMemory::Buffer
         : kind == Memory::Node ? diagnostics::ResultMemory::NodeBuffer
                                : diagnostics::ResultMemory::Ordinary;
}

class AllgatherRow {
 public:
  AllgatherRow(Communicator& communicator, const BenchOptions& options, std::uint64_t bytes,
               const std::string& algorithm)
      : communicator_(communicator),
        options_(options),
        bytes_(bytes),
        send_memory_(communicator, options.memory == Memory::Node ? Memory::Buffer : options.memory,
                     bytes),
        receive_memory_(communicator, options.memory,
                        bytes * static_cast<std::uint64_t>(communicator.size())),
        send_(send_memory_.bytes()),
        receive_(receive_memory_.bytes()) {
    call_.algorithm = algorithm == "auto" ? "" : algorithm;
    call_.ports = options.ports;
    call_.leaders = options.leaders;
  }

  Row run(const Context& context) {
    Row row;
    row.collective = "allgather";
    const auto choice =
        diagnostics::choose_allgather(communicator_, bytes_, call_, result_memory(options_.memory));
    row.algorithm = choice.algorithm;
    row.ports = choice.ports;
    row.leaders = choice.leaders;
    row.bytes_per_rank = bytes_;
    row.bytes_total = receive_.size();
    row.checked = options_.check;
    row.iterations = warm_up();
    if (options_.check) row.wrong_bytes += check();
    std::vector<double> samples =
        options_.mode == Mode::Isolated ? isolated(row.iterations) : streaming(row.iterations);
    if (options_.check) row.wrong_bytes += check();
    row.time_us = join_statistics(communicator_, samples);
    const double ranks = communicator_.size();
    // nccl-tests: algorithm bandwidth is the result's size over time; the bus moves (n-1)/n of it.
    row.algbw_GBps = static_cast<double>(row.bytes_total) / row.time_us.avg / 1000;
    row.busbw_GBps = row.algbw_GBps * (ranks - 1) / ranks;
    row.rail_limit_percent = percent_of_limit(context, row.time_us.p50);
    return row;
  }

 private:
  void call() {
    if (options_.in_place) {
      const auto mine =
          receive_.subspan(bytes_ * static_cast<std::uint64_t>(communicator_.rank()), bytes_);
      communicator_.allgather(mine, receive_, call_);
    } else {
      communicator_.allgather(send_, receive_, call_);
    }
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
    const double per_call = seconds / calls;
    return std::clamp(static_cast<int>(kSecondsPerRow / per_call), 20, 10'000);
  }

  std::vector<double> isolated(int iterations) {
    std::vector<double> samples;
    samples.reserve(static_cast<std::size_t>(iterations));
    for (int i = 0; i < iterations; ++i) {
      communicator_.barrier();
      const std::int64_t begin = base::now_ns();
      call();
      samples.push_back(static_cast<double>(base::now_ns() - begin) * 1e-3);
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
    }
    return samples;
  }

  /// One more call with fresh bytes, every one of them looked at. The sum over all ranks.
  std::uint64_t check() {
    ++seed_;
    // What a node shares is written by one rank of it, and by none that is ahead of others.
    const bool is_shared = options_.memory == Memory::Node;
    if (is_shared) communicator_.barrier();
    if (!is_shared || communicator_.node_rank() == 0) {
      std::ranges::fill(receive_, std::byte{0xA5});
    }
    if (is_shared) communicator_.barrier();
    const auto mine = bytes_ * static_cast<std::uint64_t>(communicator_.rank());
    fill_pattern(options_.in_place ? receive_.subspan(mine, bytes_) : send_, communicator_.rank(),
                 seed_);
    call();
    std::uint64_t wrong = 0;
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      wrong += wrong_bytes(receive_.subspan(bytes_ * static_cast<std::uint64_t>(rank), bytes_),
                           rank, seed_);
    }
    std::vector<std::uint64_t> all(static_cast<std::size_t>(communicator_.size()));
    communicator_.allgather(std::span(&wrong, 1), all);
    return std::accumulate(all.begin(), all.end(), std::uint64_t{0});
  }

  double percent_of_limit(const Context& context, double time_us) const {
    if (options_.rail_rates_mbit.empty() || context.nodes < 2) return -1;
    const double rate =
        std::accumulate(options_.rail_rates_mbit.begin(), options_.rail_rates_mbit.end(), 0.0) /
        8;  // bytes per microsecond
    const double must_arrive =
        static_cast<double>(bytes_) * (communicator_.size() - communicator_.node_size());
    return must_arrive / rate / time_us * 100;
  }

  Communicator& communicator_;
  const BenchOptions& options_;
  std::uint64_t bytes_;
  BenchMemory send_memory_;
  BenchMemory receive_memory_;
  std::span<std::byte> send_;
  std::span<std::byte> receive_;
  CallOptions call_;
  std::uint64_t seed_ = 0;
};

}  // namespace

std::vector<Row> bench_allgather(Communicator& communicator, const BenchOptions& options,
                                 const Context& context) {
  const bool speaks = communicator.rank() == 0;
  const bool shows_progress = speaks && ::isatty(STDERR_FILENO) == 1;
  const std::int64_t begin = base::now_ns();
  std::vector<Row> rows;
  if (speaks) print_header(context, options);
  const std::size_t all = options.algorithms.size() * options.sizes.size();
  for (const std::string& algorithm : options.algorithms) {
    for (const std::uint64_t bytes : options.sizes) {
      if (shows_progress && base::now_ns() - begin > 2'000'000'000) {
        fmt::print(stderr, "\r{} of {} rows done; now {} of {} bytes \r", rows.size(), all,
                   algorithm, base::format_bytes(bytes));
      }
      rows.push_back(AllgatherRow(communicator, options, bytes, algorithm).run(context));
      if (speaks) print_row(rows.back());
    }
  }
  return rows;
}

}  // namespace allrail::perf
