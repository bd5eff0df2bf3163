// Calls of gather, scatter, broadcast and alltoall whose every byte is checked.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "tests/multiprocess/collectives/probe_support.hpp"

namespace probe {

using Bytes = std::vector<unsigned char>;
using Counts = std::vector<std::size_t>;
inline constexpr unsigned char kUntouchedByte = 0xA5;

enum class RootedKind { Gather, Gatherv, Scatter, Scatterv, Broadcast, Alltoall, Alltoallv, Last };
inline constexpr const char* kRootedNames[] = {"gather",    "gatherv",  "scatter",  "scatterv",
                                               "broadcast", "alltoall", "alltoallv"};

inline const std::vector<std::string>& algorithms_of(RootedKind kind) {
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
  if (kind == RootedKind::Broadcast) return broadcasts;
  return kind == RootedKind::Alltoall || kind == RootedKind::Alltoallv ? alltoalls : trees;
}

/// One call, the same on all ranks.
struct RootedCall {
  RootedKind kind = RootedKind::Gather;
  int root = 0;
  std::size_t bytes = 0;  // of every block; of a v-form, the most
  bool in_place = false;
  bool displaced = false;
  bool by_plan = false;
  std::uint64_t number = 0;
  allrail::CallOptions options;

  bool is_v() const {
    return kind == RootedKind::Gatherv || kind == RootedKind::Scatterv ||
           kind == RootedKind::Alltoallv;
  }
  /// Of an alltoallv: both ranks of a pair have as much for each other, as in place they must.
  bool is_symmetric() const { return number / 2 % 2 == 0; }
  /// What `from` has for `to`; of a gather or scatter the block of `from` or of `to`.
  std::size_t bytes_of(int from, int to) const {
    if (!is_v()) return bytes;
    const int block = kind == RootedKind::Gatherv    ? from
                      : kind == RootedKind::Scatterv ? to
                      : is_symmetric()               ? from + to
                                                     : from * 3 + to;
    return bytes * ((static_cast<std::size_t>(block) * 5 + number * 3) % 7) / 6;
  }
  std::string text() const {
    return std::string(kRootedNames[static_cast<int>(kind)]) + " number " + std::to_string(number) +
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

  void make(const RootedCall& call) {
    switch (call.kind) {
      case RootedKind::Gather:
      case RootedKind::Gatherv:
        return gather(call);
      case RootedKind::Scatter:
      case RootedKind::Scatterv:
        return scatter(call);
      case RootedKind::Broadcast:
        return broadcast(call);
      default:
        return alltoall(call);
    }
  }

 private:
  /// Bytes that tell who they are from and for.
  void fill(std::span<unsigned char> block, int from, int to, const RootedCall& call) const {
    fill_pattern(block, from * ranks_ + to, call.number);
  }
  void expect(bool right, const RootedCall& call, const std::string& what) const {
    if (!right) {
      throw WrongBytes("wrong byte at rank " + std::to_string(me_) + ": " + what + " in " +
                       call.text());
    }
  }
  void expect_block(std::span<const unsigned char> block, int from, int to,
                    const RootedCall& call) const {
    expect(find_wrong_byte(block, from * ranks_ + to, call.number) < 0, call,
           "block from " + std::to_string(from) + " to " + std::to_string(to));
  }
  /// The gaps between blocks, and the end of the buffer, must be as they were.
  void expect_gaps(const Bytes& buffer, const Blocks& blocks, const RootedCall& call) const {
    Bytes rest = buffer;
    for (std::size_t rank = 0; rank < blocks.counts.size(); ++rank) {
      std::fill_n(rest.begin() + static_cast<std::ptrdiff_t>(blocks.places[rank]),
                  blocks.counts[rank], kUntouchedByte);
    }
    expect(std::ranges::all_of(rest, [](unsigned char byte) { return byte == kUntouchedByte; }),
           call, "a byte outside of the blocks");
  }
  template <class Make, class Run>
  void run(const RootedCall& call, const Make& make_plan, const Run& run_now) {
    if (!call.by_plan) return run_now();
    allrail::Plan plan = make_plan();
    plan.start();
    plan.wait();
  }
  Counts all_bytes(const RootedCall& call) const {
    Counts counts;
    for (int rank = 0; rank < ranks_; ++rank) {
      const bool gathers = call.kind == RootedKind::Gather || call.kind == RootedKind::Gatherv;
      counts.push_back(gathers ? call.bytes_of(rank, call.root) : call.bytes_of(call.root, rank));
    }
    return counts;
  }

  void gather(const RootedCall& call) {
    const bool is_root = me_ == call.root;
    const Blocks blocks(all_bytes(call), call.displaced && call.is_v());
    const std::size_t mine = blocks.counts[static_cast<std::size_t>(me_)];
    Bytes receive(is_root ? blocks.end : 0, kUntouchedByte);
    Bytes send(mine);
    std::span<unsigned char> block(send);
    if (is_root && call.in_place) {
      block = std::span(receive).subspan(blocks.places[static_cast<std::size_t>(me_)], mine);
    }
    fill(block, me_, call.root, call);
    const auto& o = call.options;
    if (call.kind == RootedKind::Gather) {
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

  void scatter(const RootedCall& call) {
    const bool is_root = me_ == call.root;
    const Blocks blocks(all_bytes(call), call.displaced && call.is_v());
    const std::size_t mine = blocks.counts[static_cast<std::size_t>(me_)];
    Bytes send(is_root ? blocks.end : 0, kUntouchedByte);
    for (int rank = 0; is_root && rank < ranks_; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      fill(std::span(send).subspan(blocks.places[r], blocks.counts[r]), me_, rank, call);
    }
    Bytes receive(mine, kUntouchedByte);
    std::span<unsigned char> block(receive);
    if (is_root && call.in_place) {
      block = std::span(send).subspan(blocks.places[static_cast<std::size_t>(me_)], mine);
    }
    const auto& o = call.options;
    if (call.kind == RootedKind::Scatter) {
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

  void broadcast(const RootedCall& call) {
    Bytes data(call.bytes, kUntouchedByte);
    if (me_ == call.root) fill(data, me_, 0, call);
    run(
        call, [&] { return communicator_.plan_broadcast(data, call.root, call.options); },
        [&] { communicator_.broadcast(data, call.root, call.options); });
    expect_block(data, call.root, 0, call);
  }

  void alltoall(const RootedCall& call) {
    Counts to_others;
    Counts from_others;
    for (int rank = 0; rank < ranks_; ++rank) {
      to_others.push_back(call.bytes_of(me_, rank));
      from_others.push_back(call.bytes_of(rank, me_));
    }
    const bool displaced = call.displaced && call.is_v();
    const Blocks sent(to_others, displaced);
    const Blocks awaited(from_others, displaced);
    Bytes send(sent.end, kUntouchedByte);
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      fill(std::span(send).subspan(sent.places[r], sent.counts[r]), me_, rank, call);
    }
    const bool in_place = call.in_place && (!call.is_v() || call.is_symmetric());
    Bytes other(in_place ? 0 : awaited.end, kUntouchedByte);
    Bytes& receive = in_place ? send : other;
    const auto& o = call.options;
    if (call.kind == RootedKind::Alltoall) {
      // A plan sends what there is when it is started.
      const Bytes filled = send;
      const auto make_plan = [&] {
        std::ranges::fill(send, kUntouchedByte);
        allrail::Plan plan = communicator_.plan_alltoall(send, receive, o);
        plan.start();
        plan.wait();
        std::ranges::copy(filled, send.begin());
        return plan;
      };
      run(call, make_plan, [&] { communicator_.alltoall(send, receive, o); });
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

}  // namespace probe
