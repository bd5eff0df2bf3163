// Modes that check bytes of calls on several communicators: splits, split-plans, split-lifetimes,
// split-refused.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <random>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/multiprocess/collectives/any_call.hpp"
#include "tests/multiprocess/collectives/rooted_caller.hpp"
#include "tests/multiprocess/collectives/split_support.hpp"

namespace probe {
namespace {

using Random = std::mt19937_64;
using allrail::Communicator;

void fail(const std::string& text) { throw WrongBytes("wrong: " + text); }

/// One call of any collective, the same on all ranks of the part, other ones on other parts.
void call_any(Part& part, std::uint64_t seed, std::uint64_t number) {
  Communicator& communicator = *part.communicator;
  Random random(seed * 7919 + number * 1009 + part.number());
  const auto below = [&random](std::uint64_t bound) { return random() % bound; };
  const auto ranks = static_cast<std::uint64_t>(communicator.size());
  const std::size_t sizes[] = {below(9), below(600), 4090 + below(12), below(40'000),
                               below(10) == 0 ? 700'001 : below(3000)};
  const std::size_t bytes = sizes[below(std::size(sizes))];
  const std::uint64_t kind = below(static_cast<std::uint64_t>(RootedKind::Last) + 4);
  const std::uint64_t call_number = number * 1000 + part.number();
  if (kind < static_cast<std::uint64_t>(RootedKind::Last)) {
    RootedCall call;
    call.kind = static_cast<RootedKind>(kind);
    call.number = call_number;
    call.root = static_cast<int>(below(ranks));
    call.bytes = bytes;
    call.in_place = below(2) == 0;
    call.displaced = below(2) == 0;
    call.by_plan = below(3) == 0;
    const auto& names = algorithms_of(call.kind);
    call.options.algorithm = names[below(names.size())];
    call.options.ports = static_cast<int>(below(4));
    RootedCaller(communicator).make(call);
    return;
  }
  Exchange exchange = same_from_all(communicator.size(), bytes);
  if (kind % 4 == 1) {
    std::vector<std::size_t> counts;
    for (std::uint64_t rank = 0; rank < ranks; ++rank) counts.push_back(below(bytes + 1));
    exchange = uneven(counts, 1);
    if (below(2) == 0) displace(exchange, below(7));
  }
  if (kind % 4 == 2) exchange.kind = Exchange::Kind::Barrier;
  const char* const names[] = {"", "direct", "bruck", "ring", "smp-ring", "smp-bruck"};
  exchange.options.algorithm = names[below(std::size(names))];
  exchange.in_place = below(2) == 0;
  exchange.number = call_number;
  Caller(communicator).make(exchange);
}

/// A call of any collective as a plan, started again and again with other bytes.
class Running {
 public:
  Running(Part& part, std::uint64_t seed, std::size_t bytes)
      : part_(part),
        call_(*part.communicator, spec(*part.communicator, seed, bytes)),
        plan_(call_.plan(*part.communicator)) {}

  void start(std::uint64_t number) {
    call_.fill(number * 1000 + part_.number());
    plan_.start();
  }
  bool test() { return plan_.test(); }
  void wait() { plan_.wait(); }
  void check() { call_.check(); }

 private:
  static AnySpec spec(const Communicator& communicator, std::uint64_t seed, std::size_t bytes) {
    AnySpec spec;
    spec.kind = static_cast<AnyKind>(seed % static_cast<std::uint64_t>(AnyKind::Last));
    spec.root = static_cast<int>(seed / 3 % static_cast<std::uint64_t>(communicator.size()));
    spec.bytes = bytes;
    spec.displaced = seed % 2 == 0;
    return spec;
  }

  Part& part_;
  AnyCall call_;
  allrail::Plan plan_;
};

/// One plan per part, all in flight at once: started in one order everywhere, waited for in an
/// order of each rank's own.
void run_plans_at_once(std::vector<Part>& parts, std::uint64_t seed, std::uint64_t rounds,
                       std::size_t bytes, Random& own) {
  std::vector<std::unique_ptr<Running>> plans;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].communicator) continue;
    const std::uint64_t of_part = seed + i * 5 + parts[i].number();
    plans.push_back(std::make_unique<Running>(parts[i], of_part, bytes + of_part % 100));
  }
  Random shared(seed);
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    std::vector<std::size_t> order(plans.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    // Ranks without some part have fewer plans: what they share keeps its order all the same.
    if (shared() % 2 == 0) std::ranges::reverse(order);
    for (const std::size_t i : order) plans[i]->start(seed * 100 + round);
    std::ranges::shuffle(order, own);
    const bool by_test = own() % 3 == 0;
    for (const std::size_t i : order) {
      while (by_test && !plans[i]->test()) {
      }
      plans[i]->wait();
      plans[i]->check();
    }
  }
}

std::size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

/// As long as it lives, this process can open `spare` files and no more.
class FewDescriptors {
 public:
  explicit FewDescriptors(std::size_t spare) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit lower = before_;
    lower.rlim_cur = 512;
    ::setrlimit(RLIMIT_NOFILE, &lower);
    for (int file = 0; (file = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) {
      taken_.push_back(file);
    }
    for (; spare > 0 && !taken_.empty(); --spare) give_back();
  }
  ~FewDescriptors() {
    while (!taken_.empty()) give_back();
    ::setrlimit(RLIMIT_NOFILE, &before_);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  void give_back() {
    ::close(taken_.back());
    taken_.pop_back();
  }
  rlimit before_{};
  std::vector<int> taken_;
};

void expect_works(Communicator& communicator, std::uint64_t number) {
  for (const std::size_t bytes : {8, 3000, 200'000}) {
    Exchange exchange = same_from_all(communicator.size(), bytes);
    exchange.number = number;
    Caller(communicator).make(exchange);
  }
}

/// Memory of one communicator in calls of it and, as ordinary memory, of another.
void check_buffers(Communicator& one, Communicator& other) {
  const std::size_t bytes = 70'000;
  for (Communicator* const used : {&one, &other}) {
    const auto ranks = static_cast<std::size_t>(used->size());
    auto send = one.allocate<unsigned char>(bytes);
    auto receive = one.allocate<unsigned char>(bytes * 64);
    auto shared = one.allocate_node_shared<unsigned char>(bytes * 64);
    fill_pattern(send, used->rank(), 5);
    used->allgather(send, std::span(receive).first(bytes * ranks));
    if (used == &one) used->allgather(send, std::span(shared).first(bytes * ranks));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (const auto& memory : {std::span(receive), std::span(shared)}) {
        if (used != &one && memory.data() == shared.data()) continue;
        const auto block = memory.subspan(rank * bytes, bytes);
        if (find_wrong_byte(block, static_cast<int>(rank), 5) >= 0) fail("byte in a Buffer");
      }
    }
    used->barrier();
    one.barrier();
  }
}

}  // namespace

int run_splits(const Arguments& arguments) {
  auto world = Communicator::world();
  const auto seed = static_cast<std::uint64_t>(arguments.number("seed", 1));
  auto parts = make_parts(world, static_cast<int>(arguments.number("columns", 2)));
  Random random(seed);
  const auto calls = static_cast<std::uint64_t>(arguments.number("calls", 100));
  Caller of_world(world);
  for (std::uint64_t number = 1; number <= calls; ++number) {
    const std::uint64_t chosen = random() % (parts.size() + 1);
    const bool is_slow = random() % 16 == 0;
    if (is_slow && random() % 4 == static_cast<std::uint64_t>(world.rank()) % 4) {
      sleep_seconds(1e-3);
    }
    if (chosen < parts.size()) {
      if (parts[chosen].communicator) call_any(parts[chosen], seed, number);
      continue;
    }
    Exchange exchange = same_from_all(world.size(), number % 5000);
    exchange.number = number * 1000 + 999;
    of_world.make(exchange);
  }
  world.barrier();
  if (world.rank() == 0) say("splits done, calls " + std::to_string(calls));
  return 0;
}

int run_split_plans(const Arguments& arguments) {
  auto world = Communicator::world();
  const auto seed = static_cast<std::uint64_t>(arguments.number("seed", 1));
  auto parts = make_parts(world, static_cast<int>(arguments.number("columns", 2)));
  Random own(seed * 1000 + static_cast<std::uint64_t>(world.rank()));
  const auto rounds = static_cast<std::uint64_t>(arguments.number("rounds", 10));
  for (const std::int64_t bytes : arguments.numbers("sizes", "10,3000,100000")) {
    run_plans_at_once(parts, seed + static_cast<std::uint64_t>(bytes), rounds,
                      static_cast<std::size_t>(bytes), own);
  }
  world.barrier();
  if (world.rank() == 0) say("split-plans done");
  return 0;
}

/// Communicators that are destroyed in every order, and made again and again.
int run_split_lifetimes(const Arguments& arguments) {
  auto world = std::make_optional(Communicator::world());
  const int me = world->rank();
  world->barrier();
  const auto cycles = arguments.number("cycles", 8);
  std::size_t files = 0;
  for (std::int64_t cycle = 0; cycle < cycles; ++cycle) {
    auto part = world->split(me % 2, -me);
    expect_works(*part, static_cast<std::uint64_t>(cycle));
    expect_works(*world, static_cast<std::uint64_t>(cycle) + 100);
    part.reset();
    world->barrier();
    // The first cycle opens what stays open, such as links of the parent.
    if (cycle == 1) {
      sleep_seconds(0.3);
      files = open_files();
    }
    const double until = now_seconds() + 5;
    while (cycle > 1 && open_files() > files && now_seconds() < until) sleep_seconds(0.01);
    if (cycle > 1 && open_files() > files) fail("files stay open behind a split");
  }
  auto row = world->split(0, me);
  auto half = row->split(me % 2, me);
  check_buffers(*row, *half);
  auto kept = row->allocate<unsigned char>(1000);
  std::vector<unsigned char> send(100), receive(100 * static_cast<std::size_t>(row->size()));
  auto plan = row->plan_allgather(send, receive);
  plan.start();
  plan.wait();
  world.reset();
  expect_works(*row, 1);
  expect_works(*half, 2);
  plan.start();
  plan.wait();
  row.reset();
  try {
    plan.start();
    fail("a plan without communicator starts");
  } catch (const allrail::Error& error) {
    if (error.code() != allrail::Code::InvalidArgument) throw;
  }
  kept[999] = 1;
  expect_works(*half, 3);
  auto moved = std::move(*half);
  expect_works(moved, 4);
  if (me == 0) say("split-lifetimes done");
  return 0;
}

/// A rank that cannot open what a new communicator needs: an Error everywhere, and all goes on.
int run_split_refused(const Arguments& arguments) {
  auto world = Communicator::world();
  expect_works(world, 1);
  // The links of the calls that a split makes, which no limit may prevent, are there then.
  if (world.split(-1, 0).has_value()) fail("a negative color has a communicator");
  world.barrier();
  sleep_seconds(0.3);
  std::optional<FewDescriptors> few;
  if (world.rank() == 1) few.emplace(static_cast<std::size_t>(arguments.number("spare", 0)));
  try {
    auto part = world.split(world.rank() % 2, 0);
    fail("a split without descriptors succeeds");
  } catch (const allrail::Error& error) {
    say("rank " + std::to_string(world.rank()) + " error: " + describe(error));
  }
  few.reset();
  expect_works(world, 2);
  auto part = world.split(world.rank() % 2, 0);
  expect_works(*part, 3);
  world.barrier();
  say("rank " + std::to_string(world.rank()) + " goes on");
  return 0;
}

}  // namespace probe
