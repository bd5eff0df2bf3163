// Modes that check bytes of gather, scatter, broadcast and alltoall: rooted-grid, rooted-sequence.
#include <algorithm>
#include <numeric>
#include <optional>
#include <random>

#include "tests/multiprocess/collectives/probe_support.hpp"

namespace probe {
namespace {

using Bytes = std::vector<unsigned char>;
using Counts = std::vector<std::size_t>;
constexpr unsigned char kUntouched = 0xA5;

enum class Kind { Gather, Gatherv, Scatter, Scatterv, Broadcast, Alltoall, Alltoallv, Last };
constexpr const char* kNames[] = {"gather",    "gatherv",  "scatter",  "scatterv",
                                  "broadcast", "alltoall", "alltoallv"};

const std::vector<std::string>& algorithms_of(Kind kind) {
  static const std::vector<std::string> trees{
      "", "direct", "binomial", "smp-direct", "smp-binomial", "topology", "topology-direct"};
  static const std::vector<std::string> broadcasts{
      "",          "binomial",          "smp-binomial",         "chain",
      "smp-chain", "scatter-allgather", "smp-scatter-allgather"};
  static const std::vector<std::string> alltoalls{"",
                                                  "direct",
                                                  "bruck",
                                                  "recursive-doubling",
                                                  "smp-direct",
                                                  "smp-bruck",
                                                  "smp-recursive-doubling"};
  if (kind == Kind::Broadcast) return broadcasts;
  return kind == Kind::Alltoall || kind == Kind::Alltoallv ? alltoalls : trees;
}

/// One call, the same on all ranks.
struct Call {
  Kind kind = Kind::Gather;
  int root = 0;
  std::size_t bytes = 0;  // of every block; of a v-form, the most
  bool in_place = false;
  bool displaced = false;
  bool by_plan = false;
  std::uint64_t number = 0;
  allrail::CallOptions options;

  bool is_v() const {
    return kind == Kind::Gatherv || kind == Kind::Scatterv || kind == Kind::Alltoallv;
  }
  /// What `from` has for `to`; of a gather or scatter the block of `from` or of `to`.
  std::size_t bytes_of(int from, int to) const {
    if (!is_v()) return bytes;
    const int block = kind == Kind::Gatherv ? from : kind == Kind::Scatterv ? to : from * 3 + to;
    return bytes * ((static_cast<std::size_t>(block) * 5 + number * 3) % 7) / 6;
  }
  std::string text() const {
    return std::string(kNames[static_cast<int>(kind)]) + " number " + std::to_string(number) +
           " root " + std::to_string(root) + " of " + std::to_string(bytes) + " bytes by '" +
           options.algorithm + "'" + (in_place ? " in place" : "") +
           (displaced ? " displaced" : "");
  }
};

/// Blocks of one buffer: in rank order, or backwards with gaps.
struct Blocks {
  Counts counts, places;
  std::size_t end = 0;
  Blocks(Counts bytes, bool displaced) : counts(std::move(bytes)), places(counts.size()) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const std::size_t rank = displaced ? counts.size() - 1 - i : i;
      end += displaced ? 1 + rank % 5 : 0;
      places[rank] = end;
      end += counts[rank];
    }
  }
};

class RootedCaller {
 public:
  explicit RootedCaller(allrail::Communicator& communicator)
      : communicator_(communicator), me_(communicator.rank()), ranks_(communicator.size()) {}

  void make(const Call& call) {
    switch (call.kind) {
      case Kind::Gather:
      case Kind::Gatherv:
        return gather(call);
      case Kind::Scatter:
      case Kind::Scatterv:
        return scatter(call);
      case Kind::Broadcast:
        return broadcast(call);
      default:
        return alltoall(call);
    }
  }

 private:
  /// Bytes that tell who they are from and for.
  void fill(std::span<unsigned char> block, int from, int to, const Call& call) const {
    fill_pattern(block, from * ranks_ + to, call.number);
  }
  void expect(bool right, const Call& call, const std::string& what) const {
    if (!right) {
      throw WrongBytes("wrong byte at rank " + std::to_string(me_) + ": " + what + " in " +
                       call.text());
    }
  }
  void expect_block(std::span<const unsigned char> block, int from, int to,
                    const Call& call) const {
    expect(find_wrong_byte(block, from * ranks_ + to, call.number) < 0, call,
           "block from " + std::to_string(from) + " to " + std::to_string(to));
  }
  /// The gaps between blocks, and the end of the buffer, must be as they were.
  void expect_gaps(const Bytes& buffer, const Blocks& blocks, const Call& call) const {
    Bytes rest = buffer;
    for (std::size_t rank = 0; rank < blocks.counts.size(); ++rank) {
      std::fill_n(rest.begin() + static_cast<std::ptrdiff_t>(blocks.places[rank]),
                  blocks.counts[rank], kUntouched);
    }
    expect(std::ranges::all_of(rest, [](unsigned char byte) { return byte == kUntouched; }), call,
           "a byte outside of the blocks");
  }
  template <class Make, class Run>
  void run(const Call& call, const Make& make_plan, const Run& run_now) {
    if (!call.by_plan) return run_now();
    allrail::Plan plan = make_plan();
    plan.start();
    plan.wait();
  }
  Counts all_bytes(const Call& call) const {
    Counts counts;
    for (int rank = 0; rank < ranks_; ++rank) {
      const bool gathers = call.kind == Kind::Gather || call.kind == Kind::Gatherv;
      counts.push_back(gathers ? call.bytes_of(rank, call.root) : call.bytes_of(call.root, rank));
    }
    return counts;
  }

  void gather(const Call& call) {
    const bool is_root = me_ == call.root;
    const Blocks blocks(all_bytes(call), call.displaced && call.is_v());
    const std::size_t mine = blocks.counts[static_cast<std::size_t>(me_)];
    Bytes receive(is_root ? blocks.end : 0, kUntouched);
    Bytes send(mine);
    std::span<unsigned char> block(send);
    if (is_root && call.in_place) {
      block = std::span(receive).subspan(blocks.places[static_cast<std::size_t>(me_)], mine);
    }
    fill(block, me_, call.root, call);
    const auto& o = call.options;
    if (call.kind == Kind::Gather) {
      run(
          call, [&] { return communicator_.plan_gather(block, receive, call.root, o); },
          [&] { communicator_.gather(block, receive, call.root, o); });
    } else {
      run(
          call,
          [&] {
            return communicator_.plan_gatherv(block, receive, blocks.counts, blocks.places,
                                              call.root, o);
          },
          [&] {
            if (call.displaced) {
              communicator_.gatherv(block, receive, blocks.counts, blocks.places, call.root, o);
            } else {
              communicator_.gatherv(block, receive, blocks.counts, call.root, o);
            }
          });
    }
    expect_block(block, me_, call.root, call);
    if (!is_root) return;
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      expect_block(std::span(receive).subspan(blocks.places[r], blocks.counts[r]), rank, me_, call);
    }
    expect_gaps(receive, blocks, call);
  }

  void scatter(const Call& call) {
    const bool is_root = me_ == call.root;
    const Blocks blocks(all_bytes(call), call.displaced && call.is_v());
    const std::size_t mine = blocks.counts[static_cast<std::size_t>(me_)];
    Bytes send(is_root ? blocks.end : 0, kUntouched);
    for (int rank = 0; is_root && rank < ranks_; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      fill(std::span(send).subspan(blocks.places[r], blocks.counts[r]), me_, rank, call);
    }
    Bytes receive(mine, kUntouched);
    std::span<unsigned char> block(receive);
    if (is_root && call.in_place) {
      block = std::span(send).subspan(blocks.places[static_cast<std::size_t>(me_)], mine);
    }
    const auto& o = call.options;
    if (call.kind == Kind::Scatter) {
      run(
          call, [&] { return communicator_.plan_scatter(send, block, call.root, o); },
          [&] { communicator_.scatter(send, block, call.root, o); });
    } else {
      run(
          call,
          [&] {
            return communicator_.plan_scatterv(send, block, blocks.counts, blocks.places, call.root,
                                               o);
          },
          [&] {
            if (call.displaced) {
              communicator_.scatterv(send, block, blocks.counts, blocks.places, call.root, o);
            } else {
              communicator_.scatterv(send, block, blocks.counts, call.root, o);
            }
          });
    }
    expect_block(block, call.root, me_, call);
    if (is_root) expect_gaps(send, blocks, call);
  }

  void broadcast(const Call& call) {
    Bytes data(call.bytes, kUntouched);
    if (me_ == call.root) fill(data, me_, 0, call);
    run(
        call, [&] { return communicator_.plan_broadcast(data, call.root, call.options); },
        [&] { communicator_.broadcast(data, call.root, call.options); });
    expect_block(data, call.root, 0, call);
  }

  void alltoall(const Call& call) {
    Counts to_others;
    Counts from_others;
    for (int rank = 0; rank < ranks_; ++rank) {
      to_others.push_back(call.bytes_of(me_, rank));
      from_others.push_back(call.bytes_of(rank, me_));
    }
    const bool displaced = call.displaced && call.is_v();
    const Blocks sent(to_others, displaced);
    const Blocks awaited(from_others, displaced);
    Bytes send(sent.end, kUntouched);
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      fill(std::span(send).subspan(sent.places[r], sent.counts[r]), me_, rank, call);
    }
    const bool in_place = call.in_place && !call.is_v();
    Bytes other(in_place ? 0 : awaited.end, kUntouched);
    Bytes& receive = in_place ? send : other;
    const auto& o = call.options;
    if (call.kind == Kind::Alltoall) {
      run(
          call, [&] { return communicator_.plan_alltoall(send, receive, o); },
          [&] { communicator_.alltoall(send, receive, o); });
    } else {
      run(
          call,
          [&] {
            return communicator_.plan_alltoallv(send, receive, sent.counts, sent.places,
                                                awaited.counts, awaited.places, o);
          },
          [&] {
            if (displaced) {
              communicator_.alltoallv(send, receive, sent.counts, sent.places, awaited.counts,
                                      awaited.places, o);
            } else {
              communicator_.alltoallv(send, receive, sent.counts, awaited.counts, o);
            }
          });
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      expect_block(std::span(receive).subspan(awaited.places[r], awaited.counts[r]), rank, me_,
                   call);
    }
    expect_gaps(receive, awaited, call);
  }

  allrail::Communicator& communicator_;
  const int me_;
  const int ranks_;
};

}  // namespace

int run_rooted_grid(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  RootedCaller caller(communicator);
  const std::int64_t every = arguments.number("every", 1);
  const std::int64_t first = arguments.number("first", 0) % every;
  // Empty: all algorithms of all collectives.
  const std::vector<std::string> only = arguments.texts("algorithms", "");
  std::int64_t points = 0;
  std::uint64_t calls = 0;
  for (int kind = 0; kind < static_cast<int>(Kind::Last); ++kind) {
    for (const std::string& algorithm : algorithms_of(static_cast<Kind>(kind))) {
      if (!only.empty() && std::ranges::find(only, algorithm) == only.end()) continue;
      for (const std::int64_t ports : arguments.numbers("ports", "1,3")) {
        for (const std::int64_t bytes : arguments.numbers("sizes", "0,1,8,100,4096,16385,70000")) {
          if (points++ % every != first) continue;
          for (const bool variant : {false, true}) {
            Call call;
            call.kind = static_cast<Kind>(kind);
            call.number = ++calls;
            call.root = static_cast<int>(calls) % communicator.size();
            call.bytes = static_cast<std::size_t>(bytes);
            call.in_place = call.displaced = call.by_plan = variant;
            call.options.algorithm = algorithm;
            call.options.ports = static_cast<int>(ports);
            caller.make(call);
          }
        }
      }
    }
  }
  communicator.barrier();
  if (communicator.rank() == 0) say("rooted-grid done, calls " + std::to_string(calls));
  return 0;
}

int run_rooted_sequence(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  RootedCaller caller(communicator);
  Caller others(communicator);
  const auto seed = static_cast<std::uint64_t>(arguments.number("seed", 1));
  std::mt19937_64 random(seed);
  const auto below = [&random](std::uint64_t bound) { return random() % bound; };
  const auto count = static_cast<std::uint64_t>(arguments.number("calls", 100));
  for (std::uint64_t i = 1; i <= count; ++i) {
    Call call;
    call.kind = static_cast<Kind>(below(static_cast<std::uint64_t>(Kind::Last)));
    call.number = i;
    call.root = static_cast<int>(below(static_cast<std::uint64_t>(communicator.size())));
    const std::size_t sizes[] = {below(9), below(600), 4090 + below(12), below(70'000),
                                 below(20) == 0 ? 1'500'000 : below(3000)};
    call.bytes = sizes[below(std::size(sizes))];
    call.in_place = below(2) == 0;
    call.displaced = below(2) == 0;
    call.by_plan = below(4) == 0;
    const auto& names = algorithms_of(call.kind);
    call.options.algorithm = names[below(names.size())];
    call.options.ports = static_cast<int>(below(4));
    // Many calls of one kind in a row: roots that run ahead, and leaves that lag behind.
    const std::uint64_t repeats = below(8) == 0 ? 25 : 1;
    const auto slow_rank = static_cast<int>(below(static_cast<std::uint64_t>(communicator.size())));
    const bool is_slow = below(6) == 0;
    const bool also_allgather = below(5) == 0;
    if (is_slow && slow_rank == communicator.rank()) sleep_seconds(2e-3);
    for (std::uint64_t repeat = 0; repeat < repeats; ++repeat) {
      call.number = i * 100 + repeat;
      if (repeat == 0 || call.bytes < 100'000) caller.make(call);
    }
    if (also_allgather) {
      Exchange exchange = same_from_all(communicator.size(), call.bytes);
      exchange.number = i;
      others.make(exchange);
    }
  }
  communicator.barrier();
  if (communicator.rank() == 0) say("rooted-sequence done, seed " + std::to_string(seed));
  return 0;
}

}  // namespace probe
