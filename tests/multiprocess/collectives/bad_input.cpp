// Modes with calls that are wrong: each must be an Error on every rank, soon.
#include "tests/multiprocess/collectives/bad_input.hpp"

#include <atomic>
#include <limits>
#include <thread>

#include "tests/multiprocess/collectives/any_call.hpp"

namespace probe {
namespace {

CallOptions by(const std::string& algorithm, int ports = 0, int leaders = 0) {
  CallOptions options;
  options.algorithm = algorithm;
  options.ports = ports;
  options.leaders = leaders;
  return options;
}

/// What one rank can see by itself.
const Table& local_cases() {
  static const Table kTable = {
      {"receive-size",
       [](Case& c) {
         if (c.odd) c.receive.pop_back();
         c.right();
       }},
      {"null-send",
       [](Case& c) {
         const std::span<const unsigned char> null(static_cast<unsigned char*>(nullptr), kBytes);
         c.odd ? c.communicator.allgather(null, c.receive) : c.right();
       }},
      {"null-receive",
       [](Case& c) {
         const std::span<unsigned char> null(static_cast<unsigned char*>(nullptr),
                                             kBytes * c.ranks);
         c.odd ? c.communicator.allgather(c.send, null) : c.right();
       }},
      {"overlap",
       [](Case& c) {
         const std::size_t place = c.me * kBytes + (c.me == 0 ? 1 : -1);
         const auto mine = std::span(c.receive).subspan(place, kBytes);
         c.odd ? c.communicator.allgather(mine, c.receive) : c.right();
       }},
      {"algorithm", [](Case& c) { c.with(by(c.odd ? "quickest" : "ring")); }},
      {"ports", [](Case& c) { c.with(by("ring", c.odd ? 65 : 1)); }},
      {"negative-ports", [](Case& c) { c.with(by("ring", c.odd ? -1 : 1)); }},
      {"counts-length",
       [](Case& c) {
         auto counts = c.counts();
         if (c.odd) counts.pop_back();
         c.communicator.allgatherv(c.send, c.receive, counts);
       }},
      {"own-count",
       [](Case& c) {
         auto counts = c.counts();
         if (c.odd) counts[c.me] -= 1, counts[(c.me + 1) % c.ranks] += 1;
         c.communicator.allgatherv(c.send, c.receive, counts);
       }},
      {"displacement-overlap",
       [](Case& c) {
         auto places = c.counts();
         for (std::size_t rank = 0; rank < c.ranks; ++rank) places[rank] = rank * kBytes;
         if (c.odd) places[1] -= 1;
         c.communicator.allgatherv(c.send, c.receive, c.counts(), places);
       }},
      {"displacement-outside",
       [](Case& c) {
         auto places = c.counts();
         for (std::size_t rank = 0; rank < c.ranks; ++rank) places[rank] = rank * kBytes;
         if (c.odd) places.back() += 1;
         c.communicator.allgatherv(c.send, c.receive, c.counts(), places);
       }},
      {"count-overflow",
       [](Case& c) {
         auto counts = c.counts();
         if (c.odd) counts[(c.me + 1) % c.ranks] = std::numeric_limits<std::size_t>::max() - 5;
         c.communicator.allgatherv(c.send, c.receive, counts);
       }},
  };
  return kTable;
}

/// All ranks have a Buffer, and not all of them receive into it.
void receive_into_a_buffer_or_not(Case& c, std::size_t bytes) {
  c.send.resize(bytes), c.receive.resize(bytes * c.ranks);
  auto buffer = c.communicator.allocate<unsigned char>(c.receive.size());
  c.odd ? c.communicator.allgather(c.send, buffer) : c.right();
}

/// What only shows between ranks: each of the calls is right by itself.
const Table& mismatches() {
  static const Table kTable = {
      {"sizes",
       [](Case& c) {
         if (c.odd) c.send.resize(kBytes + 8), c.receive.resize((kBytes + 8) * c.ranks);
         c.right();
       }},
      {"sizes-of-large-blocks",
       [](Case& c) {
         const std::size_t bytes = c.odd ? 2'000'000 : 1'000'000;
         c.send.resize(bytes), c.receive.resize(bytes * c.ranks);
         c.right();
       }},
      {"small-and-large",
       [](Case& c) {
         const std::size_t bytes = c.odd ? 2'000'000 : 8;
         c.send.resize(bytes), c.receive.resize(bytes * c.ranks);
         c.right();
       }},
      {"zero-size",
       [](Case& c) {
         if (c.odd) c.send.clear(), c.receive.clear();
         c.right();
       }},
      {"algorithms", [](Case& c) { c.with(by(c.odd ? "ring" : "bruck")); }},
      {"smp-and-flat", [](Case& c) { c.with(by(c.odd ? "smp-ring" : "direct")); }},
      {"ports", [](Case& c) { c.with(by("ring", c.odd ? 2 : 1)); }},
      {"leaders", [](Case& c) { c.with(by("smp-ring", 1, c.odd ? 2 : 1)); }},
      {"memory", [](Case& c) { receive_into_a_buffer_or_not(c, kBytes); }},
      {"memory-of-large-blocks", [](Case& c) { receive_into_a_buffer_or_not(c, 1'200'000); }},
      {"allocate",
       [](Case& c) {
         if (c.odd) c.communicator.allocate<unsigned char>(kBytes);
         c.right();
       }},
      {"barrier", [](Case& c) { c.odd ? c.communicator.barrier() : c.right(); }},
      {"barriers-of-others", [](Case& c) { c.odd ? c.right() : c.communicator.barrier(); }},
      {"order",
       [](Case& c) {
         if (c.odd) c.communicator.barrier();
         c.right();
         if (!c.odd) c.communicator.barrier();
       }},
      {"one-call-more",
       [](Case& c) {
         c.right();
         if (c.odd) c.right();
         c.communicator.barrier();
       }},
      {"operation",
       [](Case& c) {
         c.odd ? c.communicator.allgatherv(c.send, c.receive, c.counts()) : c.right();
       }},
      // Where the blocks lie is each rank's own affair, and large calls go another way then.
      {"displacements",
       [](Case& c) {
         std::vector<std::size_t> places(c.ranks);
         for (std::size_t rank = 0; rank < c.ranks; ++rank) places[rank] = rank * kBytes;
         c.odd ? c.communicator.allgatherv(c.send, c.receive, c.counts(), places)
               : c.communicator.allgatherv(c.send, c.receive, c.counts());
       }},
      {"counts",
       [](Case& c) {
         auto counts = c.counts();
         if (c.odd) counts[(c.me + 1) % c.ranks] -= 1, counts[(c.me + 2) % c.ranks] += 1;
         c.communicator.allgatherv(c.send, c.receive, counts);
       }},
  };
  return kTable;
}

}  // namespace

int run_bad_input(const Arguments& arguments) {
  auto communicator = Communicator::world();
  const std::string name = arguments.text("case", "");
  const bool differ = arguments.mode() == "mismatch";
  Table table;
  // Of every collective alike, or what is particular to one of them.
  if (arguments.number("every", 0) != 0) {
    table = differ ? every_mismatch() : every_local_cases();
  } else {
    table = differ ? mismatches() : local_cases();
    table.merge(Table(differ ? rooted_mismatches() : rooted_local_cases()));
    if (differ) table.merge(Table(alltoallv_mismatches()));
  }
  if (name.empty()) {
    for (const auto& entry : table) say(entry.first);
    return 0;
  }
  const auto odd_rank = arguments.number("rank", 1);  // -1: all of them
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto me = static_cast<std::size_t>(communicator.rank());
  Case context{communicator,  odd_rank < 0 || odd_rank == communicator.rank(),
               ranks,         me,
               Bytes(kBytes), Bytes(kBytes * ranks)};
  for (int call = 0; call < arguments.number("before", 3); ++call) context.right();
  communicator.barrier();
  sleep_seconds(0.1);  // an Error of another rank could end the barrier of this one
  const std::string prefix = "rank " + std::to_string(me);
  const double began = now_seconds();
  bool failed = false;
  const auto late = arguments.number("late", -1);  // a rank that computes meanwhile
  if (late == communicator.rank()) sleep_seconds(1);
  for (const char* turn : {" error: ", " again: "}) {
    // With leaves=1 the error of who calls wrongly unwinds and destroys the communicator.
    if (turn[1] == 'a' && context.odd && arguments.number("leaves", 0) != 0) break;
    try {
      turn[1] == 'e' ? table.at(name)(context) : communicator.barrier();
      say(prefix + turn + "none");
    } catch (const allrail::Error& error) {
      failed = true;
      say(prefix + turn + describe(error));
    }
    if (turn[1] == 'e') say(prefix + " after " + std::to_string(now_seconds() - began));
  }
  return failed ? kErrorCode : 0;
}

/// Two threads of rank 0 make a call that has to wait for other ranks: one of them gets an Error,
/// and nothing else happens.
int run_two_threads(const Arguments& arguments) {
  auto communicator = Communicator::world();
  const std::string name = arguments.text("collective", "barrier");
  AnySpec spec;
  if (name != "barrier") spec.kind = any_kind(name);
  spec.bytes = kBytes;
  // Rank 0 is not done with its part before another rank comes.
  const bool gathers = spec.kind == AnyKind::Gather || spec.kind == AnyKind::Gatherv;
  spec.root = gathers ? 0 : 1;
  const std::string prefix = "rank " + std::to_string(communicator.rank());
  std::atomic<int> refused = 0;
  const auto call = [&] {
    AnyCall one(communicator, spec);
    one.fill(1);
    try {
      name == "barrier" ? communicator.barrier() : one.call(communicator);
      if (name != "barrier") one.check();
    } catch (const allrail::Error& error) {
      ++refused;
      say(prefix + " error: " + describe(error));
    }
  };
  communicator.barrier();
  if (communicator.rank() != 0) {
    sleep_seconds(1);
    call();
  } else {
    std::thread first(call);
    call();
    first.join();
    if (refused != 1) throw WrongBytes(std::to_string(refused) + " of two threads were refused");
  }
  Caller caller(communicator);
  for (std::uint64_t number = 1; number <= 5; ++number) {
    Exchange exchange = same_from_all(communicator.size(), kBytes * number * number);
    exchange.number = number;
    caller.make(exchange);
  }
  say(prefix + " goes on");
  return 0;
}

}  // namespace probe
