#include "coll/schedule/evaluate.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "coll/schedule/network.hpp"

namespace allrail::schedule {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

/// Records that come and go, by number.
template <class Record>
class Pool {
 public:
  std::uint32_t add(const Record& record) {
    if (unused_.empty()) {
      records_.push_back(record);
      return static_cast<std::uint32_t>(records_.size() - 1);
    }
    const std::uint32_t number = unused_.back();
    unused_.pop_back();
    records_[number] = record;
    return number;
  }
  void remove(std::uint32_t number) { unused_.push_back(number); }
  Record& operator[](std::uint32_t number) { return records_[number]; }

 private:
  std::vector<Record> records_;
  std::vector<std::uint32_t> unused_;
};

enum class Happening : std::uint8_t {
  RankGoesOn,
  PieceClimbs,
  PieceDescends,
  PieceArrives,
  PieceLands
};

struct Event {
  double time;
  std::uint64_t order;  // of what happens at the same time: as it was planned
  std::uint32_t number;
  Happening what;

  bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : order > other.order;
  }
};

/// A put between its post and its await.
struct Message {
  std::int32_t poster;
  std::int32_t receiver;  // as within the cell
  std::uint64_t pair;
  std::uint32_t next = kNone;  // of the same pair
  int pieces = 0;              // that have not landed
};

/// Puts of an ordered pair of ranks in their order, and whether the receiver waits for the first.
struct PairCost {
  std::uint32_t first = kNone;
  std::uint32_t last = kNone;
  bool awaited = false;
};

struct RankCost {
  std::size_t next = 0;  // action
  bool worked = false;   // what comes before that action
  bool ended = false;
  bool awaits_sent = false;
  std::uint64_t stage = 0;
  int in_flight = 0;                   // of its puts
  std::vector<std::int32_t> watchers;  // ranks that wait for its flag
};

class Evaluator {
 public:
  Evaluator(const NodeMap& map, const std::vector<Program>& programs, const Model& model,
            Symmetry symmetry)
      : map_(map),
        programs_(programs),
        model_(model),
        symmetry_(symmetry),
        cell_(static_cast<int>(programs.size())),
        network_(map, model),
        memories_(static_cast<std::size_t>(map.nodes()) * static_cast<std::size_t>(model.domains)),
        ranks_(programs.size()) {
    check_cells();
    evaluation_.finished_s.assign(programs.size(), 0);
    double rates = 0;
    for (const double rail : model.rail_s_per_byte) rates += rail > 0 ? 1 / rail : 0;
    for (const double rail : model.rail_s_per_byte) {
      rail_shares_.push_back(rates > 0 ? (rail > 0 ? 1 / rail / rates : 0) : 1.0 / model.rails());
    }
  }

  Evaluation run() {
    for (int rank = 0; rank < cell_; ++rank) plan(0, Happening::RankGoesOn, rank);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      happen(event);
    }
    for (int rank = 0; rank < cell_; ++rank) {
      if (!state(rank).ended) {
        throw std::invalid_argument("the schedules do not fit together: rank " +
                                    std::to_string(rank) + " waits forever");
      }
    }
    return std::move(evaluation_);
  }

 private:
  void check_cells() const {
    const auto is_power = [](int number) { return (number & (number - 1)) == 0; };
    const bool fits =
        cell_ > 0 && map_.ranks() % cell_ == 0 &&
        (symmetry_ != Symmetry::None || cell_ == map_.ranks()) &&
        (symmetry_ != Symmetry::Exclusive || (is_power(cell_) && is_power(map_.ranks())));
    if (!fits) {
      throw std::invalid_argument(std::to_string(cell_) + " programs cannot stand for " +
                                  std::to_string(map_.ranks()) + " ranks");
    }
  }

  RankCost& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  int node_of(int rank) const { return map_.node_of[static_cast<std::size_t>(rank)]; }

  template <class Number>
  void plan(double time, Happening what, Number number) {
    events_.push({time, planned_++, static_cast<std::uint32_t>(number), what});
  }

  void happen(const Event& event) {
    const std::uint32_t number = event.number;
    switch (event.what) {
      case Happening::RankGoesOn:
        go_on(static_cast<int>(number));
        break;
      case Happening::PieceClimbs:
        plan(network_.climb(pieces_[number], now_), Happening::PieceDescends, number);
        break;
      case Happening::PieceDescends:
        plan(network_.descend(pieces_[number], now_), Happening::PieceArrives, number);
        break;
      case Happening::PieceArrives:
        plan(network_.receive(pieces_[number], now_), Happening::PieceLands, number);
        break;
      case Happening::PieceLands:
        land(pieces_[number].message);
        pieces_.remove(number);
        break;
    }
  }

  /// Runs the actions of a rank until one takes time or has to wait.
  void go_on(int rank) {
    RankCost& me = state(rank);
    const Program& program = programs_[static_cast<std::size_t>(rank)];
    while (!me.ended) {
      const Action& action = program[me.next];
      const double ready = me.worked ? now_ : worked(rank, action);
      me.worked = true;
      if (ready > now_) {
        plan(ready, Happening::RankGoesOn, rank);
        return;
      }
      if (!run_action(rank, me, action)) return;
      ++me.next;
      me.worked = false;
      if (is_put(action) && is_copied(rank, action)) {
        plan(now_ + copy_s(action), Happening::RankGoesOn, rank);
        return;
      }
    }
  }

  static bool is_put(const Action& action) {
    return action.act == Act::Put || action.act == Act::PutRest;
  }

  /// When a rank has done what comes before an action: its core, and the memory that it copies in.
  double worked(int rank, const Action& action) {
    const double done = now_ + action.work_s;
    if (model_.memory_s_per_byte == 0 || action.copied_bytes == 0) return done;
    const auto node = static_cast<std::size_t>(node_of(rank));
    const int local = action.near < 0 ? map_.local_rank_of[static_cast<std::size_t>(rank)]
                                      : static_cast<int>(action.near);
    const int domain = domain_of(model_, local, map_.node_size(static_cast<int>(node)));
    double& free = memories_[node * static_cast<std::size_t>(model_.domains) +
                             static_cast<std::size_t>(domain)];
    free = std::max(now_, free) + action.copied_bytes * model_.memory_s_per_byte;
    return std::max(done, free);
  }

  /// False where the rank has to wait; it comes back here when what it waits for has happened.
  bool run_action(int rank, RankCost& me, const Action& action) {
    switch (action.act) {
      case Act::Put:
      case Act::PutRest:
        post(rank, action);
        return true;
      case Act::Await:
        return take(pair_of(action.peer, rank));
      case Act::Raise:
        me.stage = action.amount;
        for (const std::int32_t watcher : me.watchers) plan(now_, Happening::RankGoesOn, watcher);
        me.watchers.clear();
        return true;
      case Act::AwaitFlag: {
        const auto& local = map_.ranks_of[static_cast<std::size_t>(node_of(rank))];
        RankCost& other = state(local[static_cast<std::size_t>(action.peer)]);
        if (other.stage >= action.amount) return true;
        other.watchers.push_back(rank);
        return false;
      }
      case Act::AwaitSent:
        me.awaits_sent = me.in_flight > 0;
        return !me.awaits_sent;
      case Act::End:
        me.ended = true;
        evaluation_.finished_s[static_cast<std::size_t>(rank)] = now_;
        evaluation_.seconds = std::max(evaluation_.seconds, now_);
        return true;
    }
    return true;
  }

  std::uint64_t pair_of(int from, int to) const {
    return static_cast<std::uint64_t>(from) * static_cast<std::uint64_t>(map_.ranks()) +
           static_cast<std::uint64_t>(to);
  }
  double copy_s(const Action& put) const {
    return static_cast<double>(put.amount) * model_.copy_s_per_byte;
  }
  bool is_copied(int rank, const Action& put) const {
    return !model_.local_puts_by_rail && node_of(rank) == node_of(put.peer);
  }

  /// A put to another cell comes back to this one as what the rank at the same place of some other
  /// cell puts to it.
  std::uint64_t mirrored_pair(int from, int to) const {
    const int cell = to / cell_;
    const int moved = cell * cell_;
    if (symmetry_ == Symmetry::Exclusive) return pair_of(from ^ moved, to % cell_);
    return pair_of((from - moved + map_.ranks()) % map_.ranks(), to % cell_);
  }

  void post(int rank, const Action& put) {
    const int receiver = put.peer % cell_;
    const std::uint64_t pair = mirrored_pair(rank, put.peer);
    const std::uint32_t message = messages_.add({rank, receiver, pair});
    PairCost& queue = pairs_[pair];
    if (queue.last == kNone) {
      queue.first = message;
    } else {
      messages_[queue.last].next = message;
    }
    queue.last = message;
    ++state(rank).in_flight;
    ++evaluation_.puts;
    if (is_copied(rank, put)) {
      messages_[message].pieces = 1;
      Piece piece;
      piece.message = message;
      plan(now_ + copy_s(put) + model_.flag_s, Happening::PieceLands, pieces_.add(piece));
      return;
    }
    evaluation_.bytes_by_rail += put.amount;
    send(rank, put, receiver, message);
  }

  void send(int rank, const Action& put, int receiver, std::uint32_t message) {
    const auto bytes = static_cast<double>(put.amount);
    Piece piece;
    piece.message = message;
    piece.from = rank;
    piece.to = receiver;
    piece.goes_on = put.act == Act::PutRest;
    piece.crosses = network_.leaf_of(node_of(rank)) != network_.leaf_of(node_of(put.peer));
    const bool striped = model_.rail_owner == RailOwner::Node && put.amount > model_.stripe_bytes;
    const int rails = striped ? model_.rails() : 1;
    messages_[message].pieces = rails;
    for (int i = 0; i < rails; ++i) {
      piece.rail = striped ? static_cast<std::uint8_t>(i) : put.rail;
      piece.bytes = striped ? bytes * rail_shares_[piece.rail] : bytes;
      const double reached = network_.send(piece, now_);
      plan(reached, piece.crosses ? Happening::PieceClimbs : Happening::PieceArrives,
           pieces_.add(piece));
    }
  }

  void land(std::uint32_t number) {
    Message& message = messages_[number];
    if (--message.pieces > 0) return;
    RankCost& poster = state(message.poster);
    if (--poster.in_flight == 0 && poster.awaits_sent) {
      poster.awaits_sent = false;
      plan(now_, Happening::RankGoesOn, message.poster);
    }
    PairCost& queue = pairs_.at(message.pair);
    if (queue.first == number && queue.awaited) {
      queue.awaited = false;
      plan(now_, Happening::RankGoesOn, message.receiver);
    }
  }

  /// The next put of a pair, if it has landed.
  bool take(std::uint64_t pair) {
    PairCost& queue = pairs_[pair];
    if (queue.first == kNone || messages_[queue.first].pieces > 0) {
      queue.awaited = true;
      return false;
    }
    const std::uint32_t taken = queue.first;
    queue.first = messages_[taken].next;
    if (queue.first == kNone) pairs_.erase(pair);
    messages_.remove(taken);
    return true;
  }

  const NodeMap& map_;
  const std::vector<Program>& programs_;
  const Model& model_;
  const Symmetry symmetry_;
  const int cell_;
  Network network_;
  std::vector<double> rail_shares_;  // of a striped put
  std::vector<double> memories_;     // when each is free again, by node * domains + domain
  std::vector<RankCost> ranks_;
  Pool<Message> messages_;
  Pool<Piece> pieces_;
  std::unordered_map<std::uint64_t, PairCost> pairs_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t planned_ = 0;
  double now_ = 0;
  Evaluation evaluation_;
};

}  // namespace

Evaluation evaluate(const NodeMap& map, const std::vector<Program>& programs, const Model& model,
                    Symmetry symmetry) {
  return Evaluator(map, programs, model, symmetry).run();
}

}  // namespace allrail::schedule
