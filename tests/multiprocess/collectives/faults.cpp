// Modes in which something happens to a rank: loop, leave, die-in-call.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "tests/multiprocess/collectives/any_call.hpp"
#include "tests/multiprocess/collectives/probe_support.hpp"

namespace probe {
namespace {

allrail::CallOptions options_of(const Arguments& arguments) {
  allrail::CallOptions options;
  options.algorithm = arguments.text("algorithm", "");
  options.ports = static_cast<int>(arguments.number("ports", 0));
  options.leaders = static_cast<int>(arguments.number("leaders", 0));
  return options;
}

std::string prefix(const allrail::Communicator& communicator) {
  return "rank " + std::to_string(communicator.rank());
}

void check_blocks(std::span<const unsigned char> whole, std::size_t bytes, std::size_t skip,
                  std::uint64_t call) {
  for (std::size_t rank = 0; rank * bytes < whole.size(); ++rank) {
    const auto block = whole.subspan(rank * bytes + skip, bytes - skip);
    if (const auto wrong = find_wrong_byte(block, static_cast<int>(rank), call); wrong >= 0) {
      throw WrongBytes("wrong byte in call " + std::to_string(call) + ": byte " +
                       std::to_string(wrong) + " of the block of rank " + std::to_string(rank));
    }
  }
}

/// After an error nobody writes into memory of the user any more.
void check_rests(std::span<const unsigned char> whole) {
  const std::vector<unsigned char> before(whole.begin(), whole.end());
  sleep_seconds(0.2);
  if (!std::ranges::equal(whole, before)) throw WrongBytes("bytes changed after the error");
  say("the bytes rest");
}

/// Says now and then how far this rank is and what its rails have carried, for whoever breaks them.
class Progress {
 public:
  Progress(allrail::Communicator& communicator, double every_s)
      : communicator_(communicator), every_s_(every_s), last_(now_seconds()), said_(last_) {}

  void after_call(std::uint64_t call) {
    if (every_s_ <= 0) return;
    const double now = now_seconds();
    longest_s_ = std::max(longest_s_, now - last_);
    last_ = now;
    if (now - said_ < every_s_) return;
    std::ostringstream line;
    line << prefix(communicator_) << " progress {\"call\": " << call
         << ", \"longest_s\": " << longest_s_ << ", \"rails\": [";
    const char* comma = "";
    for (const auto& rail : communicator_.rail_statistics()) {
      line << comma << "{\"sent\": " << rail.bytes_sent << ", \"received\": " << rail.bytes_received
           << ", \"fences\": " << rail.fences << ", \"replays\": " << rail.replays
           << ", \"reconnects\": " << rail.reconnects << "}";
      comma = ", ";
    }
    line << "]}";
    say(line.str());
    said_ = now;
    longest_s_ = 0;
  }

 private:
  allrail::Communicator& communicator_;
  double every_s_, last_, said_, longest_s_ = 0;
};

/// Blocks from the whole of `send` down to about half of it, all of which are checked.
void call_allgatherv(allrail::Communicator& communicator, std::span<const unsigned char> send,
                     std::span<unsigned char> whole, std::size_t skip, std::uint64_t call,
                     const allrail::CallOptions& options) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<std::size_t> counts;
  std::size_t end = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    counts.push_back(send.size() - rank * (send.size() / 2 / ranks));
    end += counts.back();
  }
  const std::size_t mine = counts[static_cast<std::size_t>(communicator.rank())];
  communicator.allgatherv(send.first(mine), whole.first(end), counts, options);
  for (std::size_t rank = 0, place = 0; rank < ranks; place += counts[rank++]) {
    const auto block = whole.subspan(place + skip, counts[rank] - skip);
    if (find_wrong_byte(block, static_cast<int>(rank), call) >= 0) {
      throw WrongBytes("wrong byte in call " + std::to_string(call) + ": the block of rank " +
                       std::to_string(rank) + " of an allgatherv");
    }
  }
}

/// A root that changes from call to call, so that every rank is awaited and runs ahead in turn.
void call_other(allrail::Communicator& communicator, const std::string& collective,
                std::span<unsigned char> send, std::span<unsigned char> whole, std::size_t skip,
                std::uint64_t call, const allrail::CallOptions& options) {
  constexpr int kBarriers = 50;  // so that a rank that is killed at any time is killed in one
  const auto ranks = static_cast<std::uint64_t>(communicator.size());
  const int root = static_cast<int>(call % ranks);
  if (collective == "gather") communicator.gather(send, whole, root);
  if (collective == "scatter") communicator.scatter(whole, send, root);
  if (collective == "broadcast") communicator.broadcast(whole, root);
  if (collective == "alltoall") communicator.alltoall(whole, whole);
  if (collective == "allgatherv") call_allgatherv(communicator, send, whole, skip, call, options);
  if (collective == "gatherv" || collective == "scatterv" || collective == "alltoallv") {
    AnySpec spec{any_kind(collective), root, send.size(), call % 2 == 0, {}};
    AnyCall any(communicator, spec);
    any.fill(call);
    any.call(communicator);
    any.check();
  }
  for (int i = 0; collective == "barrier" && i < kBarriers; ++i) communicator.barrier();
}

/// Whether rank 0 says so: after a call that is no allgather the others do not know.
bool is_over(allrail::Communicator& communicator, bool over) {
  std::vector<unsigned char> word{static_cast<unsigned char>(over ? 1 : 0)};
  communicator.broadcast(word, 0);
  return word[0] == 1;
}

/// Computes, and does not look at Allrail meanwhile.
void spin_seconds(double seconds) {
  const double end = now_seconds() + seconds;
  volatile std::uint64_t sum = 0;
  while (now_seconds() < end) {
    for (int i = 0; i < 100'000; ++i) sum = sum * 3 + 1;
  }
}

/// Allgathers of each size in turn, until rank 0 says in its block that it is time to end: after so
/// many `seconds`, but not before `least` calls; after so many `calls`; or when there is a file of
/// the name that `until` gives. `call_began` is when the last of them was made.
std::uint64_t loop_until_told(allrail::Communicator& communicator, const Arguments& arguments,
                              double& call_began) {
  constexpr std::size_t kFlagBytes = 8;
  const auto sizes = arguments.numbers("bytes", "1024");
  const auto late = arguments.number("sleep_rank", -1);
  const auto busy = arguments.number("spin_rank", -1);
  const auto last_call = static_cast<std::uint64_t>(arguments.number("calls", 0));
  const auto least = static_cast<std::uint64_t>(arguments.number("least", 0));
  const auto dies_in = static_cast<std::uint64_t>(arguments.number("dies_in", 0));
  const std::string until = arguments.text("until", "");
  const auto options = options_of(arguments);
  std::vector<unsigned char> ordinary_send, ordinary;
  const std::string memory = arguments.text("memory", "");
  const auto most = static_cast<std::size_t>(*std::ranges::max_element(sizes));
  const std::size_t most_whole = most * static_cast<std::size_t>(communicator.size());
  const std::string other = arguments.text("collective", "");  // empty: allgather
  // With memory=node results are stored once per node, with memory=buffer all lies in Buffers.
  allrail::NodeBuffer<unsigned char> shared;
  if (memory == "node") shared = communicator.allocate_node_shared<unsigned char>(most_whole);
  allrail::Buffer<unsigned char> send_buffer, buffer;
  if (memory == "buffer") {
    send_buffer = communicator.allocate<unsigned char>(most);
    buffer = communicator.allocate<unsigned char>(most_whole);
  }
  Progress progress(communicator, arguments.seconds("report", 0));
  const double end = now_seconds() + arguments.seconds("seconds", 1);
  for (std::uint64_t call = 1;; ++call) {
    const auto bytes = static_cast<std::size_t>(sizes[call % sizes.size()]);
    const std::size_t whole_bytes = bytes * static_cast<std::size_t>(communicator.size());
    if (memory != "buffer") ordinary_send.resize(bytes);
    if (memory.empty()) ordinary.resize(whole_bytes);
    const std::span<unsigned char> send =
        memory == "buffer" ? std::span(send_buffer).first(bytes) : std::span(ordinary_send);
    const std::span<unsigned char> whole = memory == "node" ? std::span(shared).first(whole_bytes)
                                           : memory == "buffer"
                                               ? std::span(buffer).first(whole_bytes)
                                               : std::span(ordinary);
    if (call == 20 && late == communicator.rank()) sleep_seconds(arguments.seconds("sleep", 0));
    if (call == 20 && busy == communicator.rank()) spin_seconds(arguments.seconds("spin", 0));
    const bool over = (now_seconds() > end && call >= least) || call == last_call ||
                      (!until.empty() && ::access(until.c_str(), F_OK) == 0);
    send[0] = over ? 1 : 0;
    fill_pattern(send.subspan(kFlagBytes), communicator.rank(), call);
    call_began = now_seconds();
    if (call == dies_in && arguments.number("dies", -1) == communicator.rank()) ::raise(SIGKILL);
    if (other.empty()) {
      try {
        communicator.allgather(send, whole, options);
      } catch (const allrail::Error&) {
        if (arguments.number("rests", 0) != 0) check_rests(whole);
        throw;
      }
      check_blocks(whole, bytes, kFlagBytes, call);
    } else {
      call_other(communicator, other, send, whole, kFlagBytes, call, options);
    }
    progress.after_call(call);
    if (other.empty() ? whole[0] == 1 : is_over(communicator, over)) return call;
    if (arguments.number("pause_us", 0) > 0) {
      sleep_seconds(1e-6 * arguments.seconds("pause_us", 0));
    }
  }
}

}  // namespace

int run_loop(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  communicator.barrier();
  say(prefix(communicator) + " ready, pid " + std::to_string(::getpid()));
  double call_began = 0;
  try {
    const std::uint64_t calls = loop_until_told(communicator, arguments, call_began);
    say(prefix(communicator) + " done, calls " + std::to_string(calls));
    return 0;
  } catch (const allrail::Error& error) {
    say(prefix(communicator) + " error: " + describe(error));
    say(prefix(communicator) + " after " + std::to_string(now_seconds() - call_began));
  }
  try {
    communicator.barrier();
    say(prefix(communicator) + " again: no error");
  } catch (const allrail::Error& error) {
    say(prefix(communicator) + " again: " + describe(error));
  }
  return kErrorCode;
}

/// One rank leaves in the way that `how` says; the others leave later, or call once more. All wait
/// for `pause` seconds before the last of their calls, and who leaves for twice as long. So rank
/// `stop`, which stops itself behind that call, has not acknowledged yet what it put there.
int run_leave(const Arguments& arguments) {
  const std::string how = arguments.text("how", "end");
  const auto leaver = arguments.number("rank", 1);
  auto communicator = allrail::Communicator::world();
  const int me = communicator.rank();
  std::vector<unsigned char> send(static_cast<std::size_t>(arguments.number("bytes", 1024)));
  std::vector<unsigned char> whole(send.size() * static_cast<std::size_t>(communicator.size()));
  const auto calls = static_cast<std::uint64_t>(arguments.number("calls", 30));
  for (std::uint64_t call = 1; call <= calls; ++call) {
    if (call == calls) sleep_seconds(arguments.seconds("pause", 0) * (me == leaver ? 2 : 1));
    fill_pattern(send, me, call);
    communicator.allgather(send, whole, options_of(arguments));
    check_blocks(whole, send.size(), 0, call);
  }
  say(prefix(communicator) + " ready, pid " + std::to_string(::getpid()));
  if (me == arguments.number("stop", -1)) ::raise(SIGSTOP);
  if (me == leaver) {
    say(prefix(communicator) + " leaves");
    if (how == "_exit") ::_exit(0);
    if (how == "exit") std::exit(0);
    if (how == "abort") std::abort();
    return 0;
  }
  sleep_seconds(arguments.seconds("wait", 1));
  if (arguments.number("call", 0) != 0) {
    try {
      communicator.allgather(send, whole, options_of(arguments));
      say(prefix(communicator) + " call: no error");
    } catch (const allrail::Error& error) {
      say(prefix(communicator) + " error: " + describe(error));
      return kErrorCode;
    }
  }
  say(prefix(communicator) + " ends");
  return 0;
}

/// Rank 0 broadcasts and leaves while rank `stop`, which stops itself before that, does not look.
int run_leave_root(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  const int me = communicator.rank();
  std::vector<unsigned char> block(static_cast<std::size_t>(arguments.number("bytes", 1024)));
  const std::uint64_t calls = 6;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    if (me == 0) fill_pattern(block, 0, call);
    if (call == calls) {
      communicator.barrier();
      say(prefix(communicator) + " ready, pid " + std::to_string(::getpid()));
      if (me == arguments.number("stop", 1)) ::raise(SIGSTOP);
      if (me == 0) sleep_seconds(0.2);
    }
    communicator.broadcast(block, 0, options_of(arguments));
    check_blocks(block, block.size(), 0, call);
  }
  say(prefix(communicator) + " ends");
  return 0;
}

/// Some ranks have begun a call when one of them is killed in it, and the others come later. That
/// one goes on with its plan until those have begun, so it has done all that needs no others: the
/// list `early` (-1: nobody) says which step it dies at. With before=1 it does not begin. Those
/// that have all make one call more, since the one that dies may have ended its part.
int run_die_in_call(const Arguments& arguments) {
  constexpr int kLastTests = 100;  // what was sent to it is there by then, as a rule
  auto communicator = allrail::Communicator::world();
  const int me = communicator.rank();
  const auto victim = arguments.number("rank", 1);
  const std::string folder = arguments.text("folder", "");
  const auto early = arguments.numbers("early", "");
  const auto exists = [&folder](const std::string& name) {
    return ::access((folder + "/" + name).c_str(), F_OK) == 0;
  };
  const auto make = [&folder](const std::string& name) {
    ::close(::open((folder + "/" + name).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  };
  std::vector<unsigned char> send(static_cast<std::size_t>(arguments.number("bytes", 1024)));
  std::vector<unsigned char> whole(send.size() * static_cast<std::size_t>(communicator.size()));
  allrail::Plan plan = communicator.plan_allgather(send, whole, options_of(arguments));
  for (int call = 0; call < 3; ++call) {
    plan.start();
    plan.wait();
  }
  communicator.barrier();
  if (me == victim) {
    const auto have_begun = [&] {
      return std::ranges::all_of(
          early, [&](auto rank) { return rank < 0 || exists(std::to_string(rank)); });
    };
    const bool begins = arguments.number("before", 0) == 0;
    if (begins) plan.start();
    for (int tests = 0; tests < kLastTests; tests += have_begun() ? 1 : 0) {
      if (begins) plan.test();
      sleep_seconds(1e-4);
    }
    say(prefix(communicator) + " dies at " + std::to_string(now_seconds()));
    make("dies");
    ::kill(::getpid(), SIGKILL);
  }
  try {
    while (std::ranges::find(early, me) == early.end() && !exists("dies")) sleep_seconds(1e-3);
    plan.start();
    make(std::to_string(me));
    plan.wait();
    communicator.barrier();
    say(prefix(communicator) + " done");
    return 0;
  } catch (const allrail::Error& error) {
    say(prefix(communicator) + " error: " + describe(error));
  }
  try {
    communicator.barrier();
    say(prefix(communicator) + " again: no error");
  } catch (const allrail::Error& error) {
    say(prefix(communicator) + " again: " + describe(error));
  }
  return kErrorCode;
}

}  // namespace probe
