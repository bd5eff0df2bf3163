// Modes with plans that are started: plans, plan-loop, plan-helper.
#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <thread>

#include <unistd.h>

#include "tests/multiprocess/collectives/probe_support.hpp"

namespace probe {
namespace {

constexpr unsigned char kUntouched = 0x5a;
constexpr std::size_t kGuardBytes = 64;

std::string prefix(const allrail::Communicator& communicator) {
  return "rank " + std::to_string(communicator.rank());
}

/// A plan with buffers of its own, whose bytes differ from start to start.
class Planned {
 public:
  Planned(allrail::Communicator& communicator, const Exchange& exchange)
      : exchange_(exchange),
        me_(static_cast<std::size_t>(communicator.rank())),
        send_(exchange.counts[me_] * exchange.element_bytes),
        receive_(2 * kGuardBytes + exchange.receive_elements * exchange.element_bytes),
        plan_(make(communicator)) {}
  // The plan names the buffers by address.
  Planned(Planned&&) = delete;

  void start(std::uint64_t number) {
    number_ = number;
    std::ranges::fill(receive_, kUntouched);
    fill_pattern(mine(), static_cast<int>(me_), number);
    plan_.start();
    running_ = true;
  }
  bool test() { return plan_.test(); }
  void wait() { plan_.wait(); }
  bool running() const { return running_; }

  /// After its end: every byte of every block, gap and guard.
  void check() {
    running_ = false;
    expected_.assign(receive_.size(), kUntouched);
    for (std::size_t rank = 0; rank < exchange_.counts.size(); ++rank) {
      fill_pattern(std::span(expected_).subspan(kGuardBytes + exchange_.offset_bytes(rank),
                                                exchange_.counts[rank] * exchange_.element_bytes),
                   static_cast<int>(rank), number_);
    }
    if (expected_ != receive_) {
      const auto wrong = std::mismatch(expected_.begin(), expected_.end(), receive_.begin()).first;
      throw WrongBytes("wrong byte at rank " + std::to_string(me_) + ", place " +
                       std::to_string(wrong - expected_.begin() - kGuardBytes) + " in start " +
                       std::to_string(number_) + " of " + exchange_.text());
    }
    if (find_wrong_byte(mine(), static_cast<int>(me_), number_) >= 0) {
      throw WrongBytes("the send buffer was changed: " + exchange_.text());
    }
  }

 private:
  std::span<unsigned char> mine() {
    if (!exchange_.in_place) return send_;
    return std::span(receive_).subspan(kGuardBytes + exchange_.offset_bytes(me_), send_.size());
  }

  allrail::Plan make(allrail::Communicator& communicator) {
    const std::span<unsigned char> receive =
        std::span(receive_).subspan(kGuardBytes, receive_.size() - 2 * kGuardBytes);
    if (exchange_.kind == Exchange::Kind::Allgather) {
      return communicator.plan_allgather(mine(), receive, exchange_.options);
    }
    if (exchange_.kind == Exchange::Kind::Allgatherv) {
      return communicator.plan_allgatherv(mine(), receive, exchange_.counts, exchange_.options);
    }
    return communicator.plan_allgatherv(mine(), receive, exchange_.counts, exchange_.displacements,
                                        exchange_.options);
  }

  Exchange exchange_;
  std::size_t me_;
  std::vector<unsigned char> send_, receive_, expected_;
  std::uint64_t number_ = 0;
  bool running_ = false;
  allrail::Plan plan_;
};

/// Random starts, ends and blocking calls, which are the same on all ranks, and what each rank does
/// in between, which is not.
class Sequence {
 public:
  Sequence(allrail::Communicator& communicator, const Arguments& arguments)
      : communicator_(communicator),
        caller_(communicator),
        how_(arguments.text("how", "mixed")),
        sizes_(arguments.numbers("sizes", "0,1,7,100,4096,16385,70000")),
        algorithms_(arguments.texts("algorithms", "auto,ring,smp-bruck,direct,smp-ring-chain")),
        common_(static_cast<std::uint64_t>(arguments.number("seed", 1))),
        own_(common_() + static_cast<std::uint64_t>(communicator.rank())) {
    for (std::int64_t i = 0; i < arguments.number("plans", 6); ++i) add_plan();
  }

  void run(std::int64_t steps) {
    for (std::int64_t step = 0; step < steps; ++step) {
      Planned& plan = *plans_[below(plans_.size())];
      const std::uint64_t what = below(8);
      if (!plan.running() && what < 6) {
        plan.start(++number_);
      } else if (plan.running() && what < 4) {
        end(plan);
      } else if (what == 6) {
        call();
      } else if (what == 7 && below(4) == 0) {
        replace_one();
      }
      dawdle();
    }
    for (auto& plan : plans_) {
      if (plan->running()) end(*plan);
    }
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return common_() % bound; }

  Exchange next_exchange() {
    const auto bytes = static_cast<std::size_t>(sizes_[below(sizes_.size())]);
    const auto ranks = static_cast<std::size_t>(communicator_.size());
    Exchange exchange;
    if (below(2) == 0) {
      exchange = same_from_all(communicator_.size(), bytes);
    } else {
      std::vector<std::size_t> counts;
      for (std::size_t rank = 0; rank < ranks; ++rank) counts.push_back(bytes * below(4) / 3);
      exchange = uneven(std::move(counts), 1);
      if (below(3) == 0) displace(exchange, below(30));
    }
    exchange.in_place = below(2) == 0;
    const std::string& algorithm = algorithms_[below(algorithms_.size())];
    if (algorithm != "auto") exchange.options.algorithm = algorithm;
    exchange.options.ports = static_cast<int>(below(3));
    return exchange;
  }

  void add_plan() { plans_.push_back(std::make_unique<Planned>(communicator_, next_exchange())); }

  /// A plan that has ended goes and another comes: memory, links and registrations with it.
  void replace_one() {
    const auto idle = std::ranges::find_if(plans_, [](auto& one) { return !one->running(); });
    if (idle == plans_.end()) return;
    plans_.erase(idle);
    add_plan();
  }

  void call() {
    Exchange exchange = next_exchange();
    if (below(4) == 0) exchange.kind = Exchange::Kind::Barrier;
    exchange.number = ++number_;
    caller_.make(exchange);
  }

  void end(Planned& plan) {
    const bool by_test = how_ == "test" || (how_ == "mixed" && own_() % 2 == 0);
    if (by_test) {
      // Now and then somebody else needs the processor.
      while (!plan.test()) {
        if (own_() % 8 == 0) std::this_thread::yield();
      }
      if (!plan.test()) throw WrongBytes("a plan that has ended runs again");
    } else {
      plan.wait();
    }
    plan.check();
  }

  /// What only this rank does: it computes, or looks at one plan or another.
  void dawdle() {
    if (own_() % 10 == 0) sleep_seconds(1e-5 * static_cast<double>(own_() % 300));
    for (std::uint64_t tests = own_() % 4; tests > 0; --tests) {
      Planned& plan = *plans_[own_() % plans_.size()];
      if (plan.running()) plan.test();
    }
  }

  allrail::Communicator& communicator_;
  Caller caller_;
  std::string how_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::string> algorithms_;
  std::mt19937_64 common_, own_;
  std::uint64_t number_ = 0;
  std::deque<std::unique_ptr<Planned>> plans_;
};

/// Two plans in flight and a call that blocks, until rank 0 says in its block that it is over.
std::uint64_t loop_with_plans(allrail::Communicator& communicator, const Arguments& arguments) {
  const auto bytes = static_cast<std::size_t>(arguments.number("bytes", 1024));
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto me = static_cast<std::uint64_t>(communicator.rank());
  allrail::CallOptions options;
  options.algorithm = arguments.text("algorithm", "");
  std::vector<unsigned char> send(bytes), one(bytes * ranks), two(bytes * ranks), three(ranks);
  allrail::Plan first = communicator.plan_allgather(send, one, options);
  allrail::Plan second = communicator.plan_allgather(send, two, options);
  const double end = now_seconds() + arguments.seconds("seconds", 1);
  for (std::uint64_t call = 1;; ++call) {
    fill_pattern(send, static_cast<int>(me), call);
    send[0] = now_seconds() > end ? 1 : 0;
    first.start();
    second.start();
    if (call % 5 == 0) sleep_seconds(0.002);
    if (call % 3 == 0) communicator.allgather(std::span(send).first(1), three);
    if ((call + me) % 2 == 0) {
      while (!second.test()) {
      }
      first.wait();
    } else {
      while (!first.test()) sleep_seconds(1e-5);
      second.wait();
    }
    if (one != two) throw WrongBytes("two plans of the same bytes have different results");
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      // The first word of a block is not of the pattern.
      std::vector<unsigned char> block(bytes);
      fill_pattern(block, static_cast<int>(rank), call);
      block[0] = one[rank * bytes];
      if (std::memcmp(block.data(), &one[rank * bytes], bytes) != 0) {
        throw WrongBytes("wrong bytes from rank " + std::to_string(rank) + " in call " +
                         std::to_string(call));
      }
    }
    if (one[0] == 1) return call;
  }
}

}  // namespace

int run_plans(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  Sequence(communicator, arguments).run(arguments.number("steps", 200));
  communicator.barrier();
  if (communicator.rank() == 0) say("plans done");
  return 0;
}

int run_plan_loop(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  communicator.barrier();
  say(prefix(communicator) + " ready, pid " + std::to_string(::getpid()));
  try {
    const std::uint64_t calls = loop_with_plans(communicator, arguments);
    say(prefix(communicator) + " done, calls " + std::to_string(calls));
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

/// All start, then one rank computes: the others' plans end all the same, also where it has to pass
/// their blocks on.
int run_plan_helper(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  Exchange exchange = same_from_all(communicator.size(),
                                    static_cast<std::size_t>(arguments.number("bytes", 100'000)));
  exchange.options.algorithm = arguments.text("algorithm", "ring");
  Planned plan(communicator, exchange);
  plan.start(1);  // makes the links
  plan.wait();
  plan.check();
  communicator.barrier();
  const double began = now_seconds();
  plan.start(2);
  if (communicator.rank() == arguments.number("rank", 1)) {
    sleep_seconds(arguments.seconds("sleep", 5));
  }
  plan.wait();
  plan.check();
  say(prefix(communicator) + " after " + std::to_string(now_seconds() - began));
  communicator.barrier();
  return 0;
}

}  // namespace probe
