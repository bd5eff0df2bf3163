#include "coll/schedule/replay.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "coll/schedule/replay_bytes.hpp"
#include "coll/schedule/replay_puts.hpp"
#include "coll/schedule/replay_ranks.hpp"

namespace allrail::schedule {
namespace {

class Replay {
 public:
  Replay(std::span<const ReplayCall> calls, const ReplayOptions& options)
      : calls_(calls),
        map_(calls.front().shape.map),
        random_(options.seed),
        bytes_(calls, options.slots, findings_),
        ranks_(calls, options),
        puts_(calls, bytes_, ranks_, findings_, random_) {
    for (int rank = 0; rank < map_.ranks(); ++rank) {
      skip_finished_calls(rank);
      if (!ranks_.finished(rank)) {
        active_.push_back(rank);
      }
    }
    // Three ways of being unfair, since fair interleavings hide most races.
    delivery_percent_ = std::array<std::uint64_t, 4>{0, 10, 50, 95}[random_.below(4)];
    order_ = static_cast<Order>(random_.below(3));
    std::vector<int> shuffled;
    while (!active_.empty()) {
      const std::size_t i = random_.below(active_.size());
      shuffled.push_back(active_[i]);
      active_[i] = active_.back();
      active_.pop_back();
    }
    active_ = std::move(shuffled);
  }

  std::vector<Violation> run() {
    bool runnable = true;
    for (const ReplayCall& call : calls_) {
      for (Violation& violation : check_pairs(call)) {
        runnable = runnable && violation.fault != Fault::NoSuchPeer;
        findings_.add(violation.fault, std::move(violation.sentence));
      }
    }
    if (!runnable) {
      return findings_.take();
    }
    while (!active_.empty() || puts_.any_in_flight()) {
      if (puts_.any_in_flight() && random_.below(100) < delivery_percent_) {
        puts_.deliver_a_piece();
      } else if (!advance_someone()) {
        if (!puts_.any_in_flight()) {
          report_deadlock();
          break;
        }
        puts_.deliver_a_piece();
      }
    }
    check_results();
    return findings_.take();
  }

 private:
  /// Uniform: any rank. Ranked: the first rank of a random order that can go on. Greedy: one rank
  /// as long as it can go on.
  enum class Order { Uniform, Ranked, Greedy };

  void skip_finished_calls(int rank) {
    while (!ranks_.finished(rank) && ranks_.through(rank)) {
      // What is not shared stays as it is, and is looked at in the end.
      const int call = ranks_[rank].call;
      if (calls_[call].node_shared) bytes_.check_result(call, rank);
      ranks_.enter_next_call(rank);
    }
  }

  bool can_run(int rank) {
    const RankState& state = ranks_[rank];
    const Step& step = ranks_.current(rank);
    switch (step.kind) {
      case StepKind::Copy:
      case StepKind::Pack:
      case StepKind::Unpack:
      case StepKind::Stamp:
        return (step.to != Memory::Slot && step.to != Memory::Lines) ||
               ranks_.slot_free(state.call, map_.node_of[rank]);
      case StepKind::Put:
        return step.to == Memory::Slot ? ranks_.slot_free(state.call, map_.node_of[step.peer])
                                       : ranks_.is_ready(state.call, step.peer);
      case StepKind::Await:
        return puts_.next_has_landed(state.call, step.peer, rank);
      case StepKind::Publish:
      case StepKind::Offer:
      case StepKind::Read:
        return true;
      case StepKind::AwaitLocal: {
        const RankState& other = ranks_[ranks_.local(rank, step.peer)];
        return other.call > state.call || (other.call == state.call && other.stage >= step.stage);
      }
      case StepKind::AwaitSent:
        return state.puts_in_flight[state.call] == 0;
      case StepKind::Once: {
        const OnceState& once = ranks_.once(rank);
        return once.done || once.rank < 0 || once.rank == rank;
      }
    }
    return true;
  }

  bool advance_someone() {
    if (active_.empty()) {
      return false;
    }
    const std::size_t start = order_ == Order::Uniform  ? random_.below(active_.size())
                              : order_ == Order::Greedy ? greedy_ % active_.size()
                                                        : 0;
    for (std::size_t i = 0; i < active_.size(); ++i) {
      const std::size_t index = (start + i) % active_.size();
      const int rank = active_[index];
      if (can_run(rank)) {
        greedy_ = index;
        run_step(rank);
        if (ranks_.finished(rank)) {
          active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(index));
        }
        return true;
      }
    }
    return false;
  }

  void run_step(int rank) {
    RankState& state = ranks_[rank];
    const Step step = ranks_.current(rank);
    switch (step.kind) {
      case StepKind::Copy:
      case StepKind::Pack:
      case StepKind::Unpack:
        copy(state.call, rank, step);
        break;
      case StepKind::Stamp:
        stamp(state.call, rank, step);
        break;
      case StepKind::Put:
        puts_.post(state.call, rank, step);
        break;
      case StepKind::Await: {
        puts_.take_next(state.call, step.peer, rank);
        const Range range = bytes_.range(state.call, rank, step.to, step.to_offset, step.bytes);
        if (step.to == Memory::Slot && range.in_bounds &&
            !bytes_.has_header(state.call, range, step)) {
          findings_.add(Fault::HeaderMissing,
                        Findings::where(state.call, rank, step) + " finds no header");
        }
        break;
      }
      case StepKind::Offer:
        state.offer = step;
        state.stage = step.stage;
        break;
      case StepKind::Publish:
        state.stage = step.stage;
        break;
      case StepKind::Read:
        read(state.call, rank, step);
        break;
      case StepKind::Once:
        if (!once(rank)) return;
        break;
      case StepKind::AwaitLocal:
      case StepKind::AwaitSent:
        break;
    }
    ++state.step;
    if (ranks_.through(rank)) {
      bytes_.check_headers(state.call, rank);
    }
    skip_finished_calls(rank);
  }

  /// One copy at a time, so that others go on in between. True once all are made.
  bool once(int rank) {
    OnceState& state = ranks_.once(rank);
    if (state.done) return true;
    const int call = ranks_[rank].call;
    const std::vector<Step>& copies = calls_[call].schedules[rank].once;
    state.rank = rank;
    if (state.made < copies.size()) copy(call, rank, copies[state.made++]);
    state.done = state.made == copies.size();
    return state.done;
  }

  void copy(int call, int rank, const Step& step) {
    const Range from = bytes_.range(call, rank, step.from, step.from_offset, step.bytes);
    const Range to = bytes_.range(call, rank, step.to, step.to_offset, step.bytes);
    if (bytes_.check_bounds(call, rank, step, from) && bytes_.check_bounds(call, rank, step, to)) {
      ranks_.check_shared(call, rank, step, findings_);
      bytes_.check_read(call, rank, step, from);
      bytes_.write(call, rank, step, to, step.bytes, from);
    }
  }

  /// What a rank offers may be read from its Offer to the end of its call.
  void read(int call, int rank, const Step& step) {
    const int owner = ranks_.local(rank, step.peer);
    const RankState& state = ranks_[owner];
    if (state.call > call) {
      findings_.add(Fault::OwnerReturned, Findings::where(call, rank, step) +
                                              " reads memory of a rank that has "
                                              "ended the call");
      return;
    }
    if (state.call < call || !state.offer) {
      findings_.add(Fault::ReadBeforeArrival,
                    Findings::where(call, rank, step) + " reads what is not offered");
      return;
    }
    const Step& offer = *state.offer;
    const bool inside =
        step.from_offset <= offer.bytes && step.bytes <= offer.bytes - step.from_offset;
    const Range from =
        bytes_.range(call, owner, offer.from, offer.from_offset + step.from_offset, step.bytes);
    const Range to = bytes_.range(call, rank, step.to, step.to_offset, step.bytes);
    if (!inside || !from.in_bounds || !to.in_bounds) {
      findings_.add(Fault::OutOfBounds,
                    Findings::where(call, rank, step) + " leaves its memory, or what is offered");
      return;
    }
    ranks_.check_shared(call, rank, step, findings_);
    bytes_.check_read(call, rank, step, from);
    bytes_.write(call, rank, step, to, step.bytes, from);
  }

  void stamp(int call, int rank, const Step& step) {
    ranks_[rank].stamped = true;
    const Range to = bytes_.range(call, rank, Memory::Slot, step.to_offset, kHeaderBytes);
    if (bytes_.check_bounds(call, rank, step, to)) {
      bytes_.write(call, rank, step, to, kHeaderBytes, bytes_.header_of(call, rank));
    }
  }

  void report_deadlock() {
    for (const int rank : active_) {
      findings_.add(
          Fault::Deadlock,
          Findings::where(ranks_[rank].call, rank, ranks_.current(rank)) + " waits forever");
    }
  }

  void check_results() {
    for (int call = 0; call < static_cast<int>(calls_.size()); ++call) {
      for (int rank = 0; rank < map_.ranks(); ++rank) {
        if (!calls_[call].node_shared) bytes_.check_result(call, rank);
      }
    }
  }

  std::span<const ReplayCall> calls_;
  const NodeMap& map_;
  Random random_;
  Findings findings_;
  ReplayBytes bytes_;
  ReplayRanks ranks_;
  ReplayPuts puts_;
  std::vector<int> active_;
  std::size_t greedy_ = 0;
  std::uint64_t delivery_percent_ = 0;
  Order order_ = Order::Uniform;
};

}  // namespace

Purpose purpose_of_allgather(const Shape& shape) {
  std::vector<Received> all;
  all.reserve(shape.bytes.size());
  for (int from = 0; from < shape.ranks(); ++from) {
    all.push_back({from, 0, shape.receive_offsets[from], shape.bytes[from]});
  }
  return {shape.bytes, std::vector<std::vector<Received>>(shape.bytes.size(), all)};
}

std::vector<Violation> replay(std::span<const ReplayCall> calls, const ReplayOptions& options) {
  return calls.empty() ? std::vector<Violation>{} : Replay(calls, options).run();
}

}  // namespace allrail::schedule
