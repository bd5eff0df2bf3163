// Modes with plans that are used wrongly: each is an Error, or what the header promises.
#include <functional>
#include <map>
#include <optional>
#include <thread>

#include "tests/multiprocess/collectives/any_call.hpp"

namespace probe {
namespace {

using allrail::CallOptions;
using allrail::Code;
using allrail::Communicator;
using allrail::Plan;

struct Case {
  std::optional<Communicator> communicator;
  bool odd;  // this rank does it differently
  AnySpec spec;
  std::optional<AnyCall> buffers;
  std::uint64_t number = 0;
  std::chrono::milliseconds timeout{700};
  double late_s = 2.5;

  Plan plan() { return buffers->plan(*communicator); }
  /// The plan works: twice, with other bytes.
  void expect_works(Plan& plan) {
    for (int turn = 0; turn < 2; ++turn) {
      buffers->fill(++number);
      plan.start();
      plan.wait();
      buffers->check();
    }
  }
  void with(const CallOptions& options) {
    spec.options = options;
    buffers.emplace(*communicator, spec);
  }
};

/// Nothing but InvalidArgument, and nothing happens.
void expect_invalid(const char* what, const std::function<void()>& use) {
  try {
    use();
  } catch (const allrail::Error& error) {
    if (error.code() == Code::InvalidArgument) return;
    throw;
  }
  throw WrongBytes(std::string(what) + ": no error");
}

void expect_all_invalid(Plan& plan, bool start) {
  expect_invalid("test", [&] { plan.test(); });
  expect_invalid("wait", [&] { plan.wait(); });
  if (start) expect_invalid("start", [&] { plan.start(); });
}

void wait_by_test(Plan& plan) {
  while (!plan.test()) {
  }
}

/// One that is not its default.
const char* some_algorithm(AnyKind kind) {
  if (kind == AnyKind::Allgather || kind == AnyKind::Allgatherv) return "ring";
  return kind == AnyKind::Alltoall || kind == AnyKind::Alltoallv ? "bruck" : "binomial";
}

using Table = std::map<std::string, std::function<void(Case&)>>;

/// Nobody's communicator dies.
const Table& harmless() {
  static const Table kTable = {
      {"never-started",
       [](Case& c) {
         Plan plan = c.plan();
         expect_all_invalid(plan, false);
         c.expect_works(plan);
       }},
      {"moved-from",
       [](Case& c) {
         Plan from = c.plan();
         Plan plan = std::move(from);
         expect_all_invalid(from, true);  // NOLINT(bugprone-use-after-move)
         c.expect_works(plan);
         from = c.plan();
         c.expect_works(from);
         plan.start();
         from = std::move(plan);  // moved while it runs; the one that was there is destroyed
         from.wait();
       }},
      {"moved-from-communicator",
       [](Case& c) {
         Communicator from = *c.communicator->split(0, c.communicator->rank());
         Communicator communicator = std::move(from);
         // NOLINTBEGIN(bugprone-use-after-move)
         expect_invalid("barrier", [&] { from.barrier(); });
         expect_invalid("plan_barrier", [&] { (void)from.plan_barrier(); });
         expect_invalid("split", [&] { (void)from.split(0, 0); });
         expect_invalid("allocate", [&] { (void)from.allocate<int>(1); });
         expect_invalid("rail_statistics", [&] { (void)from.rail_statistics(); });
         // NOLINTEND(bugprone-use-after-move)
         communicator.barrier();
       }},
      {"wait-twice",
       [](Case& c) {
         Plan plan = c.plan();
         plan.start();
         plan.wait();
         plan.wait();
         if (!plan.test()) throw WrongBytes("a plan that has ended runs");
         c.communicator->barrier();
       }},
  };
  return kTable;
}

/// The same, of plans and communicators that are destroyed early or moved.
const Table& lifetimes() {
  static const Table kTable = {
      {"destroyed-before-it-ends",
       [](Case& c) {
         { c.plan().start(); }
         Plan plan = c.plan();
         c.expect_works(plan);
       }},
      {"destroyed-never-started",
       [](Case& c) {
         { Plan plan = c.plan(); }
         c.communicator->barrier();
       }},
      {"communicator-goes-first",
       [](Case& c) {
         Plan ended = c.plan();
         c.expect_works(ended);
         Plan fresh = c.plan();
         c.communicator.reset();
         expect_all_invalid(ended, true);
         expect_all_invalid(fresh, true);
       }},
      {"communicator-goes-while-it-runs",
       [](Case& c) {
         Plan plan = c.plan();
         plan.start();
         c.communicator.reset();
         expect_all_invalid(plan, true);
       }},
      {"communicator-moves",
       [](Case& c) {
         Plan plan = c.plan();
         plan.start();
         Communicator other = std::move(*c.communicator);
         plan.wait();
         c.communicator = std::move(other);
         c.expect_works(plan);
       }},
      {"destroyed-while-another-thread-calls",
       [](Case& c) {
         std::optional<Plan> plan(c.plan());
         c.expect_works(*plan);
         if (c.odd) {
           sleep_seconds(1);
           c.communicator->barrier();
         } else {
           std::thread first([&] { c.communicator->barrier(); });
           sleep_seconds(0.3);
           plan.reset();  // a mistake, which is logged; the call goes on
           first.join();
         }
         Plan other = c.plan();
         c.expect_works(other);
       }},
  };
  return kTable;
}

/// The communicator dies on all ranks.
const Table& deadly() {
  static const Table kTable = {
      {"started-twice",
       [](Case& c) {
         Plan plan = c.plan();
         plan.start();
         if (c.odd) plan.start();
         plan.wait();
         c.communicator->barrier();
       }},
      {"receive-size",
       [](Case& c) {
         if (c.odd) c.buffers->spoil();
         Plan plan = c.plan();
         plan.start();
         wait_by_test(plan);
         c.communicator->barrier();
       }},
      {"algorithm",
       [](Case& c) {
         CallOptions options;
         options.algorithm = c.odd ? "quickest" : some_algorithm(c.spec.kind);
         c.with(options);
         Plan plan = c.plan();
         plan.start();
         plan.wait();
         c.communicator->barrier();
       }},
      {"other-order",
       [](Case& c) {
         AnySpec spec = c.spec;
         spec.bytes *= 2;
         AnyCall larger(*c.communicator, spec);
         Plan one = c.plan();
         Plan other = larger.plan(*c.communicator);
         Plan& first = c.odd ? other : one;
         Plan& second = c.odd ? one : other;
         first.start();
         second.start();
         wait_by_test(second);
         first.wait();
         c.communicator->barrier();
       }},
      {"one-start-less",
       [](Case& c) {
         Plan plan = c.plan();
         if (!c.odd) plan.start();
         c.communicator->barrier();
         if (!c.odd) plan.wait();
       }},
  };
  return kTable;
}

/// The odd rank is late twice, each time for less than the call may take.
void late_twice(Case& c) {
  CallOptions options;
  options.timeout = c.timeout;
  c.with(options);
  if (c.odd) {
    sleep_seconds(c.late_s);
    Plan plan = c.plan();
    sleep_seconds(c.late_s);
    plan.start();
    plan.wait();
  } else {
    c.buffers->call(*c.communicator);
  }
  c.communicator->barrier();
}

/// Some rank never starts what the others started.
const Table& stuck() {
  static const Table kTable = {
      {"destroyed-while-it-runs",
       [](Case& c) {
         {
           Plan plan = c.plan();  // of an alltoallv all ranks make it together
           c.odd ? sleep_seconds(2.5) : plan.start();
         }
         c.communicator->barrier();
       }},
      {"timeout-of-the-call",
       [](Case& c) {
         CallOptions options;
         options.timeout = c.timeout;
         c.with(options);
         if (c.odd) sleep_seconds(c.late_s);
         c.buffers->call(*c.communicator);
         c.communicator->barrier();
       }},
      {"timeout-of-both-exchanges", late_twice},
      {"timeout-in-wait",
       [](Case& c) {
         CallOptions options;
         options.timeout = c.timeout;
         c.with(options);
         Plan plan = c.plan();
         if (c.odd) sleep_seconds(c.late_s);
         plan.start();
         plan.wait();
         c.communicator->barrier();
       }},
      {"timeout-in-test",
       [](Case& c) {
         CallOptions options;
         options.timeout = std::chrono::milliseconds(700);
         c.with(options);
         Plan plan = c.plan();
         if (c.odd) sleep_seconds(2.5);
         plan.start();
         wait_by_test(plan);
         c.communicator->barrier();
       }},
      {"timeout-from-start",
       [](Case& c) {
         CallOptions options;
         options.timeout = std::chrono::milliseconds(1500);
         c.with(options);
         Plan plan = c.plan();
         if (c.odd) sleep_seconds(3.5);
         plan.start();
         sleep_seconds(1.2);
         plan.wait();
         c.communicator->barrier();
       }},
  };
  return kTable;
}

}  // namespace

int run_plan_misuse(const Arguments& arguments) {
  const std::string name = arguments.text("case", "");
  const std::string kind = arguments.text("kind", "harmless");
  const Table& table = kind == "harmless"   ? harmless()
                       : kind == "lifetime" ? lifetimes()
                       : kind == "deadly"   ? deadly()
                                            : stuck();
  if (name.empty()) {
    for (const auto& entry : table) say(entry.first);
    return 0;
  }
  Case context;
  context.communicator = Communicator::world();
  const int me = context.communicator->rank();
  const auto odd_rank = static_cast<int>(arguments.number("rank", 1));
  context.odd = me == odd_rank;
  context.spec.kind = any_kind(arguments.text("collective", "allgather"));
  context.spec.bytes = static_cast<std::size_t>(arguments.number("bytes", 1000));
  context.spec.displaced = true;
  context.timeout = std::chrono::milliseconds(arguments.number("timeout_ms", 700));
  context.late_s = arguments.seconds("late", 2.5);
  const bool gathers =
      context.spec.kind == AnyKind::Gather || context.spec.kind == AnyKind::Gatherv;
  // Who is stuck has to wait for the odd rank.
  context.spec.root = kind == "stuck" && gathers ? 0 : odd_rank;
  context.buffers.emplace(*context.communicator, context.spec);
  const std::string prefix = "rank " + std::to_string(me);
  double began = now_seconds();
  try {
    // An Error of a rank that has left it already may end the barrier of this one.
    context.communicator->barrier();
    began = now_seconds();
    table.at(name)(context);
    say(prefix + " error: none");
    return 0;
  } catch (const allrail::Error& error) {
    say(prefix + " error: " + describe(error));
    say(prefix + " after " + std::to_string(now_seconds() - began));
  }
  try {
    context.communicator->barrier();
    say(prefix + " again: none");
  } catch (const allrail::Error& error) {
    say(prefix + " again: " + describe(error));
  }
  return kErrorCode;
}

}  // namespace probe
