// Modes with plans over memory that Allrail gives, also over such memory that ends too early.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "tests/multiprocess/collectives/probe_support.hpp"

namespace probe {
namespace {

using allrail::Buffer;
using allrail::Communicator;
using allrail::Plan;
using Bytes = std::vector<unsigned char>;
using Span = std::span<unsigned char>;

constexpr unsigned char kUntouched = 0xa5;
constexpr std::size_t kBefore = 13;
constexpr std::size_t kBehind = 7;

void require(bool holds, const Communicator& communicator, const std::string& what) {
  if (!holds) throw WrongBytes("rank " + std::to_string(communicator.rank()) + ": " + what);
}

/// A plan that receives into the middle of a Buffer. Its data changes from start to start.
class PlanOverBuffer {
 public:
  /// `source` is empty for a plan in place.
  PlanOverBuffer(Communicator& communicator, std::size_t bytes, Span source)
      : communicator_(communicator),
        bytes_(bytes),
        buffer_(communicator.allocate<unsigned char>(kBefore + size() * bytes + kBehind)) {
    std::ranges::fill(buffer_, kUntouched);
    send_ = source.empty() ? block(communicator.rank()) : source;
    plan_.emplace(communicator.plan_allgather(send_, receive()));
  }

  void start(std::uint64_t number) {
    number_ = number;
    std::ranges::fill(receive(), kUntouched);
    fill_pattern(send_, communicator_.rank(), number);
    plan_->start();
  }

  void end(bool by_test, const std::string& what) {
    if (by_test) {
      while (!plan_->test()) {
      }
    } else {
      plan_->wait();
    }
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      require(find_wrong_byte(block(rank), rank, number_) < 0, communicator_,
              "wrong bytes of rank " + std::to_string(rank) + " of " + std::to_string(bytes_) +
                  " bytes, start " + std::to_string(number_) + ", " + what);
    }
    require(std::ranges::count(Span(buffer_).first(kBefore), kUntouched) == kBefore &&
                std::ranges::count(Span(buffer_).last(kBehind), kUntouched) == kBehind,
            communicator_, "bytes around the receive buffer were changed, " + what);
  }

  /// To another Buffer object: the elements stay where they are.
  void move_buffer() { buffer_ = std::exchange(buffer_, Buffer<unsigned char>()); }

 private:
  std::size_t size() const { return static_cast<std::size_t>(communicator_.size()); }
  Span receive() { return Span(buffer_).subspan(kBefore, size() * bytes_); }
  Span block(int rank) {
    return receive().subspan(static_cast<std::size_t>(rank) * bytes_, bytes_);
  }

  Communicator& communicator_;
  std::size_t bytes_;
  Buffer<unsigned char> buffer_;
  Span send_;
  std::optional<Plan> plan_;  // ends before the Buffer
  std::uint64_t number_ = 0;
};

/// Three plans, started together: between Buffers, in place, and out of ordinary memory.
void check_plans(Communicator& communicator, std::size_t bytes) {
  const std::uint64_t before = registrations(communicator);
  auto source = communicator.allocate<unsigned char>(bytes);
  PlanOverBuffer between(communicator, bytes, source);
  PlanOverBuffer in_place(communicator, bytes, {});
  const std::uint64_t allocated = registrations(communicator);
  const std::uint64_t rails = communicator.rail_statistics().size();
  require(allocated == before + (bytes == 0 ? 2 : 3) * rails, communicator,
          "a Buffer is registered once with every rail");
  for (std::uint64_t number = 1; number <= 6; ++number) {
    between.start(2 * number);
    in_place.start(2 * number + 1);
    in_place.end(number % 2 == 0, "in place");
    between.end(number % 2 == 0, "between Buffers");
    if (number == 3) in_place.move_buffer();
  }
  require(registrations(communicator) == allocated, communicator,
          "plans over Buffers registered memory");

  Bytes ordinary(bytes);
  PlanOverBuffer from_ordinary(communicator, bytes, ordinary);
  const std::uint64_t planned = registrations(communicator);
  std::uint64_t first = 0;
  for (std::uint64_t number = 100; number < 104; ++number) {
    from_ordinary.start(number);
    from_ordinary.end(false, "from ordinary memory");
    if (first == 0) first = registrations(communicator);
  }
  require(first <= planned + rails && registrations(communicator) == first, communicator,
          "a plan registers what it sends at its first start, and nothing else");
}

/// Memory of a plan, each in a Buffer of its own that can end.
struct Case {
  std::optional<Communicator> parent, communicator;
  bool odd;  // this rank does it differently
  std::size_t bytes;
  std::optional<Buffer<unsigned char>> send, receive;

  void allocate() {
    send = communicator->allocate<unsigned char>(bytes);
    receive = communicator->allocate<unsigned char>(bytes *
                                                    static_cast<std::size_t>(communicator->size()));
  }
  /// From here on calls are those of a communicator of all ranks that is split off. The Buffers are
  /// the whole's.
  void use_part() {
    parent = std::move(communicator);
    communicator = parent->split(0, parent->rank());
  }
  Plan plan() { return communicator->plan_allgather(*send, *receive); }
  void start(Plan& plan, std::uint64_t number) {
    fill_pattern(*send, communicator->rank(), number);
    plan.start();
  }
  void check(std::uint64_t number) {
    for (int rank = 0; rank < communicator->size(); ++rank) {
      const Span block = Span(*receive).subspan(static_cast<std::size_t>(rank) * bytes, bytes);
      require(find_wrong_byte(block, rank, number) < 0, *communicator, "wrong bytes of a plan");
    }
  }
  /// Once more, when all ranks have come.
  void start_with_all(Plan& plan) {
    communicator->barrier();
    plan.start();
    plan.wait();
  }
  /// It has ended well, and says so as often as it is asked.
  void expect_ended(Plan& plan) {
    for (int turn = 0; turn < 2; ++turn) {
      plan.wait();
      require(plan.test(), *communicator, "a plan that has ended runs");
    }
  }
};

using Table = std::map<std::string, std::function<void(Case&)>>;

/// The plan does not run when the Buffer ends.
const Table& idle_cases() {
  static const Table kTable = {
      {"receive-while-idle",
       [](Case& c) {
         Plan plan = c.plan();
         c.start(plan, 1);
         plan.wait();
         c.check(1);
         if (c.odd) c.receive.reset();
         c.expect_ended(plan);
         c.start_with_all(plan);
       }},
      {"send-while-idle",
       [](Case& c) {
         Plan plan = c.plan();
         if (c.odd) c.send.reset();
         c.start_with_all(plan);
       }},
      {"of-another-communicator",
       [](Case& c) {
         c.use_part();
         Plan plan = c.plan();
         c.start(plan, 1);
         plan.wait();
         c.check(1);
         if (c.odd) c.receive.reset();
         c.start_with_all(plan);
       }},
      {"of-a-communicator-that-is-gone",
       [](Case& c) {
         c.use_part();
         Plan plan = c.plan();
         c.parent.reset();
         c.start(plan, 1);
         plan.wait();
         c.check(1);
         if (c.odd) c.send.reset();
         c.start_with_all(plan);
       }},
      {"another-buffer",
       [](Case& c) {
         Plan plan = c.plan();
         auto other = c.communicator->allocate<unsigned char>(c.bytes);
         c.start(plan, 1);
         if (c.odd) other = Buffer<unsigned char>();
         c.expect_ended(plan);
         c.start(plan, 2);
         c.expect_ended(plan);
         c.check(2);
       }},
      {"after-the-communicator",
       [](Case& c) {
         Plan plan = c.plan();
         c.start(plan, 1);
         c.expect_ended(plan);
         c.communicator.reset();
         c.receive.reset();
       }},
  };
  return kTable;
}

/// It does.
const Table& running_cases() {
  static const Table kTable = {
      {"receive-while-it-runs",
       [](Case& c) {
         Plan plan = c.plan();
         c.start(plan, 1);
         if (c.odd) c.receive.reset();  // the others start it soon, so it ends
         c.expect_ended(plan);
         if (!c.odd) c.check(1);
         c.start_with_all(plan);
       }},
      {"of-another-while-it-runs",
       [](Case& c) {
         c.use_part();
         Plan plan = c.plan();
         c.start(plan, 1);
         if (c.odd) c.receive.reset();
         c.expect_ended(plan);
         if (!c.odd) c.check(1);
         c.start_with_all(plan);
       }},
      {"never-tested",
       [](Case& c) {
         Plan plan = c.plan();
         c.start(plan, 1);
         if (c.odd) c.receive.reset();
         if (!c.odd) plan.wait();
         c.start_with_all(plan);
       }},
      {"stuck",
       [](Case& c) {
         Plan plan = c.plan();
         if (!c.odd) {
           sleep_seconds(2.5);  // never starts it
           c.communicator->barrier();
           return;
         }
         c.start(plan, 1);
         c.receive.reset();
         try {
           plan.test();
         } catch (const allrail::Error& error) {
           say("test: " + describe(error));
         }
         plan.wait();
       }},
  };
  return kTable;
}

}  // namespace

int run_buffer_plans(const Arguments& arguments) {
  auto communicator = Communicator::world();
  for (const std::int64_t bytes : arguments.numbers("sizes", "0,1,4097,524288,1300001")) {
    check_plans(communicator, static_cast<std::size_t>(bytes));
  }
  say("rank " + std::to_string(communicator.rank()) + " buffer-plans done");
  return 0;
}

/// A Buffer is destroyed on rank 1 before a plan that names it.
int run_buffer_gone(const Arguments& arguments) {
  Case context;
  context.communicator = Communicator::world();
  const int me = context.communicator->rank();
  context.odd = me == 1;
  context.bytes = static_cast<std::size_t>(arguments.number("bytes", 1000));
  context.allocate();
  const std::string name = arguments.text("case", "");
  const std::string prefix = "rank " + std::to_string(me);
  double began = now_seconds();
  try {
    context.communicator->barrier();
    began = now_seconds();
    (idle_cases().contains(name) ? idle_cases() : running_cases()).at(name)(context);
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
