// Modes that check bytes: grid, sequence, huge.
#include <algorithm>
#include <new>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <vector>

#include <sys/mman.h>

#include "tests/multiprocess/collectives/probe_support.hpp"

namespace probe {
namespace {

/// Different counts for the ranks, some of them zero, none above `most`.
std::vector<std::size_t> uneven_counts(int ranks, std::size_t most, std::uint64_t salt) {
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto step = (static_cast<std::size_t>(rank) * 5 + salt * 3) % 7;
    counts.push_back(most * step / 6);
  }
  return counts;
}

class Grid {
 public:
  Grid(allrail::Communicator& communicator, const Arguments& arguments)
      : ranks_(communicator.size()),
        caller_(communicator),
        arguments_(arguments),
        sample_(arguments) {}

  void run() {
    for (const std::string& algorithm : arguments_.texts("algorithms", "smp-direct")) {
      for (const std::int64_t ports : arguments_.numbers("ports", "1")) {
        for (const std::int64_t leaders : arguments_.numbers("leaders", "1")) {
          options_.algorithm = algorithm == "auto" ? "" : algorithm;
          options_.ports = static_cast<int>(ports);
          options_.leaders = static_cast<int>(leaders);
          for (const std::int64_t bytes : arguments_.numbers("sizes", "0,1,4096")) {
            if (!sample_.next()) continue;
            sizes_.insert(bytes);
            point(static_cast<std::size_t>(bytes));
          }
        }
      }
    }
  }
  std::string text() const {
    return "calls " + std::to_string(calls_) + " of " + std::to_string(sizes_.size()) + " sizes";
  }

 private:
  void make(Exchange exchange) {
    exchange.number = ++calls_;
    exchange.options = options_;
    caller_.make(exchange);
  }

  void point(std::size_t bytes) {
    // Twice in a row with other bytes, then in place: the second finds the slots of the first.
    Exchange same = same_from_all(ranks_, bytes);
    make(same);
    make(same);
    same.in_place = true;
    make(same);
    Exchange barrier;
    barrier.kind = Exchange::Kind::Barrier;
    make(barrier);
    Exchange different = uneven(uneven_counts(ranks_, bytes, calls_), 1);
    make(different);
    different.in_place = true;
    make(different);
    Exchange words = uneven(uneven_counts(ranks_, bytes / 8, calls_), 8);
    displace(words, 1 + bytes % 5);
    make(words);
    displace(different, 3 + bytes % 11);
    make(different);
  }

  int ranks_;
  Caller caller_;
  const Arguments& arguments_;
  allrail::CallOptions options_;
  Sample sample_;
  std::set<std::int64_t> sizes_;  // that calls were made of
  std::uint64_t calls_ = 0;
};

/// Random calls that are the same on all ranks.
class CallMaker {
 public:
  CallMaker(std::uint64_t seed, int ranks) : random_(seed), ranks_(ranks) {}

  Exchange next() {
    Exchange exchange;
    const std::uint64_t kind = below(8);
    const std::size_t bytes = size();
    if (kind == 0) {
      exchange.kind = Exchange::Kind::Barrier;
    } else if (kind < 4) {
      exchange = same_from_all(ranks_, bytes);
    } else {
      const std::size_t element = below(2) == 0 ? 1 : 8;
      exchange = uneven(uneven_counts(ranks_, bytes / element, below(100)), element);
      if (kind < 6) displace(exchange, below(40));
    }
    exchange.in_place = below(2) == 0;
    static constexpr const char* kAlgorithms[] = {"",
                                                  "direct",
                                                  "bruck",
                                                  "ring",
                                                  "smp-bruck",
                                                  "smp-direct",
                                                  "smp-ring",
                                                  "smp-ring-chain",
                                                  "recursive-doubling",
                                                  "smp-recursive-doubling",
                                                  "smp-gather-broadcast",
                                                  "smp-direct-gather-broadcast"};
    exchange.options.algorithm = kAlgorithms[below(std::size(kAlgorithms))];
    exchange.options.ports = static_cast<int>(below(5));
    exchange.options.leaders = static_cast<int>(below(4));
    exchange.number = ++number_;
    return exchange;
  }
  /// Whether and how long a rank sleeps before a call; asked for every rank, so that all agree on
  /// what comes next.
  double pause_seconds() { return below(6) == 0 ? 1e-5 * static_cast<double>(below(500)) : 0; }

 private:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  std::size_t size() {
    switch (below(10)) {
      case 0:
        return below(9);
      case 1:
        return 4096 - 2 + below(5);
      case 2:
        return 16384 - 2 + below(5);
      case 3:
      case 4:
        return 60'000 + below(90'000);
      case 5:
        return below(40) == 0 ? 3'000'000 + below(100) : 300'000 + below(5);
      default:
        return below(5000);
    }
  }

  std::mt19937_64 random_;
  int ranks_;
  std::uint64_t number_ = 0;
};

}  // namespace

int run_grid(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  Grid grid(communicator, arguments);
  grid.run();
  communicator.barrier();
  if (communicator.rank() == 0) say("grid done, " + grid.text());
  return 0;
}

int run_sequence(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  const auto seed = static_cast<std::uint64_t>(arguments.number("seed", 1));
  CallMaker calls(seed, communicator.size());
  Caller caller(communicator);
  const std::int64_t count = arguments.number("calls", 60);
  const bool trace = arguments.number("trace", 0) != 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Exchange exchange = calls.next();
    for (int rank = 0; rank < communicator.size(); ++rank) {
      const double pause = calls.pause_seconds();
      if (rank == communicator.rank() && pause > 0) sleep_seconds(pause);
    }
    if (trace) say("rank " + std::to_string(communicator.rank()) + " enters " + exchange.text());
    caller.make(exchange);
  }
  communicator.barrier();
  if (communicator.rank() == 0) say("sequence done, seed " + std::to_string(seed));
  return 0;
}

/// Large blocks, in place: without a second copy of the result, so that this may be longer than 32
/// bits count. With `first`, rank 0's block is so long and the call an allgatherv. With `starts`,
/// by a plan that is started so often.
namespace {

/// Gigabytes in pages of 2 MiB where the system has them: by pages of 4 KiB, each of which is a
/// fault, they take minutes on some virtual machines.
class LargeMemory {
 public:
  explicit LargeMemory(std::size_t bytes)
      : bytes_(bytes),
        begin_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (begin_ == MAP_FAILED) throw std::bad_alloc();
    ::madvise(begin_, bytes, MADV_HUGEPAGE);
  }
  ~LargeMemory() { ::munmap(begin_, bytes_); }
  LargeMemory(const LargeMemory&) = delete;
  LargeMemory& operator=(const LargeMemory&) = delete;
  std::span<unsigned char> bytes() const { return {static_cast<unsigned char*>(begin_), bytes_}; }

 private:
  std::size_t bytes_;
  void* begin_;
};

}  // namespace

int run_huge(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  const auto bytes = static_cast<std::size_t>(arguments.number("bytes", 1 << 20));
  const auto me = static_cast<std::size_t>(communicator.rank());
  std::vector<std::size_t> counts(static_cast<std::size_t>(communicator.size()), bytes);
  counts[0] = static_cast<std::size_t>(arguments.number("first", static_cast<std::int64_t>(bytes)));
  const bool is_uneven = counts[0] != bytes;
  const LargeMemory memory(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  const std::span<unsigned char> whole = memory.bytes();
  const auto block_of = [&](std::size_t rank) {
    return whole.subspan(rank == 0 ? 0 : counts[0] + (rank - 1) * bytes, counts[rank]);
  };
  const std::span<unsigned char> mine = block_of(me);
  const auto check = [&](std::uint64_t call) {
    for (int rank = 0; rank < communicator.size(); ++rank) {
      const auto block = block_of(static_cast<std::size_t>(rank));
      if (const auto wrong = find_wrong_byte(block, rank, call); wrong >= 0) {
        throw WrongBytes("wrong byte at rank " + std::to_string(me) + ": byte " +
                         std::to_string(wrong) + " of the block of rank " + std::to_string(rank));
      }
    }
  };
  const auto starts = static_cast<std::uint64_t>(arguments.number("starts", 0));
  allrail::CallOptions options;
  options.algorithm = arguments.text("algorithm", "");
  if (starts == 0) {
    fill_pattern(mine, communicator.rank(), 1);
    if (is_uneven) {
      communicator.allgatherv(mine, whole, counts, options);
    } else {
      communicator.allgather(mine, whole, options);
    }
    check(1);
  } else {
    allrail::Plan plan = is_uneven ? communicator.plan_allgatherv(mine, whole, counts)
                                   : communicator.plan_allgather(mine, whole);
    for (std::uint64_t start = 1; start <= starts; ++start) {
      fill_pattern(mine, communicator.rank(), start);
      plan.start();
      plan.wait();
      check(start);
    }
  }
  communicator.barrier();
  if (me == 0) say("huge done");
  return 0;
}

}  // namespace probe
