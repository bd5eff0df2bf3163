#include "coll/schedule/replay.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "coll/schedule/replay_memory.hpp"

namespace allrail::schedule {
namespace {

constexpr std::size_t kMostViolations = 32;

/// A small seeded generator (splitmix64), so that a seed means the same run with every library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t bound) {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
    return (mixed ^ (mixed >> 31U)) % bound;
  }

 private:
  std::uint64_t state_;
};

struct Put {
  int call;
  int sender;
  Step step;
  std::vector<Origin> posted;  // what the source held when the put was posted
  int pieces_left;
};

struct Piece {
  int put;
  std::uint64_t offset;
  std::uint64_t bytes;
};

struct Pair {
  std::vector<int> puts;  // posted by the sender, in order
  std::size_t awaited = 0;
};

struct RankState {
  int call = 0;
  std::size_t step = 0;
  std::uint32_t stage = 0;          // of my flag in this call
  bool stamped = false;             // in this call
  std::optional<Step> offer;        // in this call
  std::vector<int> puts_in_flight;  // by call
};

class Replay {
 public:
  Replay(std::span<const ReplayCall> calls, const ReplayOptions& options)
      : calls_(calls),
        options_(options),
        map_(calls.front().shape.map),
        random_(options.seed),
        memory_(calls, options.slots),
        ranks_(map_.node_of.size()),
        pairs_(calls.size()) {
    for (RankState& rank : ranks_) {
      rank.puts_in_flight.assign(calls.size(), 0);
    }
    for (std::vector<Pair>& pairs : pairs_) {
      pairs.resize(ranks_.size() * ranks_.size());
    }
    for (int rank = 0; rank < map_.ranks(); ++rank) {
      skip_finished_calls(rank);
      if (!finished(rank)) {
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
        add(violation.fault, std::move(violation.sentence));
      }
    }
    if (!runnable) {
      return std::move(violations_);
    }
    while (!active_.empty() || !pieces_.empty()) {
      if (!pieces_.empty() && random_.below(100) < delivery_percent_) {
        deliver_one();
      } else if (!advance_someone()) {
        if (pieces_.empty()) {
          report_deadlock();
          break;
        }
        deliver_one();
      }
    }
    check_results();
    return std::move(violations_);
  }

 private:
  /// Uniform: any rank. Ranked: the first rank of a random order that can go on. Greedy: one rank
  /// as long as it can go on.
  enum class Order { Uniform, Ranked, Greedy };

  void add(Fault fault, std::string sentence) {
    if (violations_.size() < kMostViolations) {
      violations_.push_back({fault, std::move(sentence)});
    }
  }

  static std::string where(int call, int rank, const Step& step) {
    static constexpr std::array<const char*, 9> kNames{
        "copy",  "stamp", "put", "await", "publish", "local await", "await of its own puts",
        "offer", "read"};
    return "call " + std::to_string(call) + ", rank " + std::to_string(rank) + ", " +
           kNames[static_cast<std::size_t>(step.kind)] + " of round " + std::to_string(step.round) +
           (step.peer >= 0 ? " with peer " + std::to_string(step.peer) : "");
  }

  bool finished(int rank) const { return ranks_[rank].call == static_cast<int>(calls_.size()); }

  const Step& current(int rank) const {
    return calls_[ranks_[rank].call].schedules[rank].steps[ranks_[rank].step];
  }

  void skip_finished_calls(int rank) {
    RankState& state = ranks_[rank];
    while (!finished(rank) && state.step == calls_[state.call].schedules[rank].steps.size()) {
      // What is not shared stays as it is, and is looked at in the end.
      if (calls_[state.call].node_shared) check_result(state.call, rank);
      ++state.call;
      state.step = 0;
      state.stage = 0;
      state.stamped = false;
      state.offer.reset();
    }
  }

  Pair& pair(int call, int sender, int receiver) {
    return pairs_[call][static_cast<std::size_t>(sender) * ranks_.size() + receiver];
  }

  /// Whether every rank of `node` is done with the call that had the slot of `call` before.
  bool slot_free(int call, int node) const {
    const int before = call - options_.slots;
    return !options_.done_rule || before < 0 ||
           std::ranges::all_of(map_.ranks_of[node], [&](int rank) {
             return ranks_[rank].call > before && ranks_[rank].puts_in_flight[before] == 0;
           });
  }

  bool can_run(int rank) {
    const RankState& state = ranks_[rank];
    const Step& step = current(rank);
    switch (step.kind) {
      case StepKind::Copy:
      case StepKind::Stamp:
        return (step.to != Memory::Slot && step.to != Memory::Lines) ||
               slot_free(state.call, map_.node_of[rank]);
      case StepKind::Put:
        return step.to == Memory::Slot ? slot_free(state.call, map_.node_of[step.peer])
                                       : is_ready(state.call, step.peer);
      case StepKind::Await: {
        const Pair& from = pair(state.call, step.peer, rank);
        return from.awaited < from.puts.size() && puts_[from.puts[from.awaited]].pieces_left == 0;
      }
      case StepKind::Publish:
      case StepKind::Offer:
      case StepKind::Read:
        return true;
      case StepKind::AwaitLocal: {
        const RankState& other = ranks_[map_.ranks_of[map_.node_of[rank]][step.peer]];
        return other.call > state.call || (other.call == state.call && other.stage >= step.stage);
      }
      case StepKind::AwaitSent:
        return state.puts_in_flight[state.call] == 0;
    }
    return true;
  }

  /// Peers put into a receive buffer when its owner has entered the call; into one that a node
  /// shares, when the leader's stamp says that all have.
  bool is_ready(int call, int owner) const {
    const RankState& state = ranks_[owner];
    return state.call > call ||
           (state.call == call && (state.stamped || !calls_[call].node_shared));
  }

  /// A write of `call` into the receive buffer of `rank`: what else the node may still use it for.
  void check_shared(int call, int rank, const Step& step) {
    if (step.to != Memory::Receive || !calls_[call].node_shared) return;
    for (const int local : map_.ranks_of[map_.node_of[rank]]) {
      const RankState& other = ranks_[local];
      // A rank that runs its first step now has entered by that.
      const bool entered =
          other.call > call || (other.call == call && (other.step > 0 || local == rank));
      if (!entered) {
        add(Fault::OverwrittenInUse, where(call, rank, step) + " writes where rank " +
                                         std::to_string(local) + " may still read the last result");
        return;
      }
    }
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
        if (finished(rank)) {
          active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(index));
        }
        return true;
      }
    }
    return false;
  }

  void run_step(int rank) {
    RankState& state = ranks_[rank];
    const Step step = current(rank);
    switch (step.kind) {
      case StepKind::Copy:
        copy(state.call, rank, step);
        break;
      case StepKind::Stamp:
        stamp(state.call, rank, step);
        break;
      case StepKind::Put:
        post(state.call, rank, step);
        break;
      case StepKind::Await: {
        ++pair(state.call, step.peer, rank).awaited;
        const Range range = memory_.range(state.call, rank, step.to, step.to_offset, step.bytes);
        if (step.to == Memory::Slot && range.in_bounds && !has_header(state.call, range, step)) {
          add(Fault::HeaderMissing, where(state.call, rank, step) + " finds no header");
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
      case StepKind::AwaitLocal:
      case StepKind::AwaitSent:
        break;
    }
    ++state.step;
    if (state.step == calls_[state.call].schedules[rank].steps.size()) {
      check_headers(state.call, rank);
    }
    skip_finished_calls(rank);
  }

  /// The executor looks for headers at these places as soon as a call has run its last step.
  void check_headers(int call, int rank) {
    for (const std::uint64_t offset : calls_[call].schedules[rank].header_offsets) {
      const Range range = memory_.range(call, rank, Memory::Slot, offset, kHeaderBytes);
      if (!range.in_bounds || !is_header(call, range)) {
        add(Fault::HeaderMissing, "call " + std::to_string(call) + ", rank " +
                                      std::to_string(rank) + " finds no header at slot offset " +
                                      std::to_string(offset) + " in the end");
      }
    }
  }

  bool is_header(int call, const Range& range) const {
    return memory_.origins().starts_header(call, range.at(0)) &&
           range.at(kHeaderBytes - 1) == range.at(0) + kHeaderBytes - 1;
  }

  bool has_header(int call, const Range& range, const Step& step) const {
    return step.bytes >= kHeaderBytes && is_header(call, range);
  }

  bool check_bounds(int call, int rank, const Step& step, const Range& range) {
    if (!range.in_bounds) {
      add(Fault::OutOfBounds, where(call, rank, step) + " leaves its memory");
    }
    return range.in_bounds;
  }

  /// Reports the first byte of a range that this call has not brought there.
  void check_read(int call, int rank, const Step& step, const Range& range) {
    for (std::uint64_t i = 0; i < step.bytes; ++i) {
      if (!memory_.origins().of_call(call, range.at(i))) {
        const bool later = memory_.origins().of_later_call(call, range.at(i));
        add(later ? Fault::OverwrittenInUse : Fault::ReadBeforeArrival,
            where(call, rank, step) + " reads byte " + std::to_string(i) + " of " +
                std::to_string(step.bytes) +
                (later ? ", which a later call has overwritten" : ", which has not arrived"));
        return;
      }
    }
  }

  /// Writes `bytes` origins read from `source`; what is not of this call becomes nothing.
  template <class Source>
  void write(int call, int rank, const Step& step, const Range& to, std::uint64_t bytes,
             const Source& source) {
    const Origins& origins = memory_.origins();
    bool reported = false;
    for (std::uint64_t i = 0; i < bytes; ++i) {
      const Origin before = to.origins[i];
      const bool twice = origins.of_call(call, before);
      if (!reported && (twice || origins.of_later_call(call, before))) {
        add(twice ? Fault::WrittenTwice : Fault::OverwrittenInUse,
            where(call, rank, step) + " writes over bytes of " +
                (twice ? "the same call" : "a later call"));
        reported = true;
      }
      const Origin origin = source(i);
      to.origins[i] = origins.of_call(call, origin) ? origin : 0;
    }
  }

  void copy(int call, int rank, const Step& step) {
    const Range from = memory_.range(call, rank, step.from, step.from_offset, step.bytes);
    const Range to = memory_.range(call, rank, step.to, step.to_offset, step.bytes);
    if (check_bounds(call, rank, step, from) && check_bounds(call, rank, step, to)) {
      check_shared(call, rank, step);
      check_read(call, rank, step, from);
      write(call, rank, step, to, step.bytes, [&](std::uint64_t i) { return from.at(i); });
    }
  }

  /// What a rank offers may be read from its Offer to the end of its call.
  void read(int call, int rank, const Step& step) {
    const int owner = map_.ranks_of[map_.node_of[rank]][step.peer];
    const RankState& state = ranks_[owner];
    if (state.call > call) {
      add(Fault::OwnerReturned, where(call, rank, step) +
                                    " reads memory of a rank that has "
                                    "ended the call");
      return;
    }
    if (state.call < call || !state.offer) {
      add(Fault::ReadBeforeArrival, where(call, rank, step) + " reads what is not offered");
      return;
    }
    const Step& offer = *state.offer;
    const bool inside =
        step.from_offset <= offer.bytes && step.bytes <= offer.bytes - step.from_offset;
    const Range from =
        memory_.range(call, owner, offer.from, offer.from_offset + step.from_offset, step.bytes);
    const Range to = memory_.range(call, rank, step.to, step.to_offset, step.bytes);
    if (!inside || !from.in_bounds || !to.in_bounds) {
      add(Fault::OutOfBounds, where(call, rank, step) + " leaves its memory, or what is offered");
      return;
    }
    check_shared(call, rank, step);
    check_read(call, rank, step, from);
    write(call, rank, step, to, step.bytes, [&](std::uint64_t i) { return from.at(i); });
  }

  void stamp(int call, int rank, const Step& step) {
    ranks_[rank].stamped = true;
    const Range to = memory_.range(call, rank, Memory::Slot, step.to_offset, kHeaderBytes);
    if (check_bounds(call, rank, step, to)) {
      write(call, rank, step, to, kHeaderBytes,
            [&](std::uint64_t i) { return memory_.origins().header_byte(call, rank, i); });
    }
  }

  void post(int call, int rank, const Step& step) {
    const Range from = memory_.range(call, rank, step.from, step.from_offset, step.bytes);
    const Range to = memory_.range(call, step.peer, step.to, step.to_offset, step.bytes);
    const bool in_bounds =
        check_bounds(call, rank, step, from) && check_bounds(call, rank, step, to);
    Put put{call, rank, step, {}, 0};
    const int id = static_cast<int>(puts_.size());
    if (in_bounds && step.bytes > 0) {
      if (step.from != Memory::Slot) {
        check_read(call, rank, step, from);
      } else if (!has_header(call, from, step)) {
        add(Fault::HeaderMissing, where(call, rank, step) + " starts without a header");
      }
      put.posted.reserve(step.bytes);
      for (std::uint64_t i = 0; i < step.bytes; ++i) {
        put.posted.push_back(from.at(i));
      }
      std::uint64_t start = 0;
      while (start < step.bytes) {  // three pieces at most
        const std::uint64_t rest = step.bytes - start;
        const std::uint64_t bytes = put.pieces_left == 2 ? rest : 1 + random_.below(rest);
        pieces_.push_back({id, start, bytes});
        ++put.pieces_left;
        start += bytes;
      }
      ++ranks_[rank].puts_in_flight[call];
    }
    puts_.push_back(std::move(put));
    pair(call, rank, step.peer).puts.push_back(id);
  }

  void deliver_one() {
    std::swap(pieces_[random_.below(pieces_.size())], pieces_.back());
    const Piece piece = pieces_.back();
    pieces_.pop_back();
    Put& put = puts_[piece.put];
    const Step& step = put.step;
    const Range from = memory_.range(put.call, put.sender, step.from,
                                     step.from_offset + piece.offset, piece.bytes);
    const Range to =
        memory_.range(put.call, step.peer, step.to, step.to_offset + piece.offset, piece.bytes);
    for (std::uint64_t i = 0; i < piece.bytes; ++i) {
      if (from.at(i) != put.posted[piece.offset + i]) {
        const bool later = memory_.origins().of_later_call(put.call, from.at(i));
        add(later ? Fault::OverwrittenInUse : Fault::SourceModified,
            where(put.call, put.sender, step) + " had its source changed" +
                (later ? " by a later call" : "") + " while it was in flight");
        break;
      }
    }
    check_shared(put.call, step.peer, step);
    write(put.call, put.sender, step, to, piece.bytes, [&](std::uint64_t i) { return from.at(i); });
    if (--put.pieces_left == 0) {
      --ranks_[put.sender].puts_in_flight[put.call];
      put.posted = {};
    }
  }

  void report_deadlock() {
    for (const int rank : active_) {
      add(Fault::Deadlock, where(ranks_[rank].call, rank, current(rank)) + " waits forever");
    }
  }

  void check_results() {
    for (int call = 0; call < static_cast<int>(calls_.size()); ++call) {
      for (int rank = 0; rank < map_.ranks(); ++rank) {
        if (!calls_[call].node_shared) check_result(call, rank);
      }
    }
  }

  void check_result(int call, int rank) {
    const std::span receive =
        std::span(memory_.receive(call, rank)).first(memory_.receive_bytes(call));
    std::vector<Origin> expected(receive.size());
    if (calls_[call].node_shared) std::ranges::copy(receive, expected.begin());  // gaps keep theirs
    for (const Received& part : calls_[call].purpose.received[rank]) {
      for (std::uint64_t i = 0; i < part.bytes; ++i) {
        expected[part.to_offset + i] =
            memory_.origins().block_byte(call, part.from, part.from_offset + i);
      }
    }
    const auto [found, wanted] = std::ranges::mismatch(receive, expected);
    if (found != receive.end()) {
      const bool missing = !memory_.origins().of_call(call, *found);
      add(missing ? Fault::MissingBytes : Fault::WrongBytes,
          "call " + std::to_string(call) + ", rank " + std::to_string(rank) + ": byte " +
              std::to_string(found - receive.begin()) + " of the receive buffer is " +
              (missing ? "missing" : "wrong"));
    }
  }

  std::span<const ReplayCall> calls_;
  const ReplayOptions options_;
  const NodeMap& map_;
  Random random_;
  ReplayMemory memory_;
  std::vector<RankState> ranks_;
  std::vector<std::vector<Pair>> pairs_;  // by call, by sender * ranks + receiver
  std::vector<Put> puts_;
  std::vector<Piece> pieces_;
  std::vector<int> active_;
  std::size_t greedy_ = 0;
  std::uint64_t delivery_percent_ = 0;
  Order order_ = Order::Uniform;
  std::vector<Violation> violations_;
};

}  // namespace

Purpose purpose_of_allgather(const Shape& shape) {
  std::vector<Received> all;
  for (int from = 0; from < shape.ranks(); ++from) {
    all.push_back({from, 0, shape.receive_offsets[from], shape.bytes[from]});
  }
  return {shape.bytes, std::vector<std::vector<Received>>(shape.bytes.size(), all)};
}

std::vector<Violation> replay(std::span<const ReplayCall> calls, const ReplayOptions& options) {
  return calls.empty() ? std::vector<Violation>{} : Replay(calls, options).run();
}

}  // namespace allrail::schedule
