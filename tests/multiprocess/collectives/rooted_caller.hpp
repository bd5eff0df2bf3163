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
  std::size_t bytes = 0;  // of every block; of a v-form, the most, or up to seven more in words
  bool in_place = false;
  bool displaced = false;
  bool by_plan = false;
  std::uint64_t number = 0;
  allrail::CallOptions options;

  bool is_v() const {
    return kind == RootedKind::Gatherv || kind == RootedKind::Scatterv ||
           kind == RootedKind::Alltoallv;
  }
  /// Whether a v-form counts elements of eight bytes and not bytes.
  bool counts_words() const { return is_v() && number / 6 % 3 == 1; }
  std::size_t element_bytes() const { return counts_words() ? sizeof(std::uint64_t) : 1; }
  /// Of an alltoallv: both ranks of a pair have as much for each other, as in place they must.
  bool is_symmetric() const { return number / 2 % 2 == 0; }
  /// What `from` has for `to`; of a gather or scatter the block of `from` or of `to`.
  std::size_t bytes_of(int from, int to) const {
    if (!is_v()) return bytes;
    const int block = kind == RootedKind::Gatherv    ? from
                      : kind == RootedKind::Scatterv ? to
                      : is_symmetric()               ? from + to
                                                     : from * 3 + to;
    const std::size_t wanted = bytes * ((static_cast<std::size_t>(block) * 5 + number * 3) % 7) / 6;
    return (wanted + element_bytes() - 1) / element_bytes() * element_bytes();
  }
  std::string text() const {
    return std::string(kRootedNames[static_cast<int>(kind)]) + " number " + std::to_string(number) +
           " root " + std::to_string(root) + " of " + std::to_string(bytes) + " bytes by '" +
           options.algorithm + "'" + (in_place ? " in place" : "") +
           (displaced ? " displaced" : "") + (counts_words() ? " in words" : "");
  }
};

/// Blocks of one buffer, in bytes: in rank order, or backwards with gaps.
struct Blocks {
  Counts counts, places;
  std::size_t end = 0;
  Blocks(Counts bytes, bool displaced, std::size_t element_bytes)
      : counts(std::move(bytes)), places(counts.size()) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const std::size_t rank = displaced ? counts.size() - 1 - i : i;
      end += displaced ? (1 + rank % 5) * element_bytes : 0;
      places[rank] = end;
      end += counts[rank];
    }
  }
};

inline Counts divided(Counts counts, std::size_t by) {
  for (std::size_t& count : counts) count /= by;
  return counts;
}

template <class Element>
std::span<Element> elements_of(std::span<unsigned char> bytes) {
  return {reinterpret_cast<Element*>(bytes.data()), bytes.size() / sizeof(Element)};
}

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
  /// `in_elements(Element{})` with the type of which a v-form has its counts.
  template <class InElements>
  static void with_element(const RootedCall& call, const InElements& in_elements) {
    call.counts_words() ? in_elements(std::uint64_t{}) : in_elements(static_cast<unsigned char>(0));
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
    const Blocks blocks(all_bytes(call), call.displaced && call.is_v(), call.element_bytes());
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
      with_element(call, [&](auto element) { rooted_v(call, element, block, receive, blocks); });
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
    const Blocks blocks(all_bytes(call), call.displaced && call.is_v(), call.element_bytes());
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
      with_element(call, [&](auto element) { rooted_v(call, element, send, block, blocks); });
    }
    expect_block(block, call.root, me_, call);
    if (is_root) expect_gaps(send, blocks, call);
  }

  /// A gatherv or a scatterv.
  template <class Element>
  void rooted_v(const RootedCall& call, Element /*of counts*/, std::span<unsigned char> send,
                std::span<unsigned char> receive, const Blocks& blocks) {
    const auto from = elements_of<Element>(send);
    const auto to = elements_of<Element>(receive);
    const Counts counts = divided(blocks.counts, sizeof(Element));
    const Counts places = divided(blocks.places, sizeof(Element));
    const bool gathers = call.kind == RootedKind::Gatherv;
    const auto& o = call.options;
    run(
        call,
        [&] {
          return gathers ? communicator_.plan_gatherv(from, to, counts, places, call.root, o)
                         : communicator_.plan_scatterv(from, to, counts, places, call.root, o);
        },
        [&] {
          if (gathers && call.displaced) {
            communicator_.gatherv(from, to, counts, places, call.root, o);
          } else if (gathers) {
            communicator_.gatherv(from, to, counts, call.root, o);
          } else if (call.displaced) {
            communicator_.scatterv(from, to, counts, places, call.root, o);
          } else {
            communicator_.scatterv(from, to, counts, call.root, o);
          }
        });
  }

  template <class Element>
  void alltoallv(const RootedCall& call, Element /*of counts*/, std::span<unsigned char> send,
                 std::span<unsigned char> receive, const Blocks& sent, const Blocks& awaited) {
    const auto from = elements_of<Element>(send);
    const auto to = elements_of<Element>(receive);
    const Counts out = divided(sent.counts, sizeof(Element));
    const Counts out_places = divided(sent.places, sizeof(Element));
    const Counts in = divided(awaited.counts, sizeof(Element));
    const Counts in_places = divided(awaited.places, sizeof(Element));
    const auto& o = call.options;
    run(
        call,
        [&] { return communicator_.plan_alltoallv(from, to, out, out_places, in, in_places, o); },
        [&] {
          if (call.displaced) {
            communicator_.alltoallv(from, to, out, out_places, in, in_places, o);
          } else {
            communicator_.alltoallv(from, to, out, in, o);
          }
        });
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
    const Blocks sent(to_others, displaced, call.element_bytes());
    const Blocks awaited(from_others, displaced, call.element_bytes());
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
      with_element(call,
                   [&](auto element) { alltoallv(call, element, send, receive, sent, awaited); });
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
