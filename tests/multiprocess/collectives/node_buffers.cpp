// Modes with results that are stored once per node.
#include <algorithm>
#include <optional>

#include "tests/multiprocess/collectives/probe_support.hpp"

namespace probe {
namespace {

using allrail::Communicator;
using allrail::NodeBuffer;
using Bytes = std::vector<unsigned char>;
using Span = std::span<unsigned char>;

constexpr unsigned char kUntouched = 0xa5;
constexpr std::size_t kBefore = 13;
constexpr std::size_t kBehind = 7;

void require(bool holds, const Communicator& communicator, const std::string& what) {
  if (!holds) throw WrongBytes("rank " + std::to_string(communicator.rank()) + ": " + what);
}

std::size_t size_of(const Communicator& communicator) {
  return static_cast<std::size_t>(communicator.size());
}

/// A NodeBuffer of which calls use the middle, or a part of that.
class Shared {
 public:
  Shared(Communicator& communicator, std::size_t bytes)
      : communicator_(communicator),
        buffer_(communicator.allocate_node_shared<unsigned char>(kBefore + bytes + kBehind)) {
    require(std::ranges::count(buffer_, 0) == static_cast<std::ptrdiff_t>(buffer_.size()),
            communicator, "a new NodeBuffer is not zero");
    communicator.barrier();
    if (communicator.node_rank() == 0) std::ranges::fill(buffer_, kUntouched);
    communicator.barrier();
  }
  Span whole() { return Span(buffer_).subspan(kBefore, buffer_.size() - kBefore - kBehind); }
  void check_around() {
    communicator_.barrier();
    require(std::ranges::count(Span(buffer_).first(kBefore), kUntouched) == kBefore &&
                std::ranges::count(Span(buffer_).last(kBehind), kUntouched) == kBehind,
            communicator_, "bytes around the receive buffer were changed");
  }

 private:
  Communicator& communicator_;
  NodeBuffer<unsigned char> buffer_;
};

void check_block(const Communicator& communicator, Span block, std::size_t from,
                 std::uint64_t number, const std::string& what) {
  const auto wrong = find_wrong_byte(block, static_cast<int>(from), number);
  require(wrong < 0, communicator,
          "call " + std::to_string(number) + ", " + what + ": wrong byte " + std::to_string(wrong) +
              " of " + std::to_string(block.size()) + " of the block of rank " +
              std::to_string(from));
}

/// One call, by the memory that it sends from. Ranks that are late read what they received while
/// others are in the next call already.
void call(Communicator& communicator, Span receive, const allrail::CallOptions& options,
          std::uint64_t number, int source, Span from_buffer, bool is_slow) {
  const std::size_t bytes = receive.size() / size_of(communicator);
  const auto me = static_cast<std::size_t>(communicator.rank());
  Bytes ordinary(bytes);
  Span send = source == 0 ? Span(ordinary) : from_buffer;
  if (source == 2) {
    send = receive.subspan(me * bytes, bytes);
    communicator.barrier();  // others may still read what was there
  }
  fill_pattern(send, communicator.rank(), number);
  communicator.allgather(send, receive, options);
  // A call that takes the next slot must not disturb what is read late.
  if (is_slow) sleep_seconds(0.003);
  for (std::size_t rank = 0; rank < size_of(communicator); ++rank) {
    check_block(communicator, receive.subspan(rank * bytes, bytes), rank, number,
                options.algorithm + " from source " + std::to_string(source));
  }
}

/// Two NodeBuffers in turn and one again and again, whole and in part, from all kinds of memory.
void check_size(Communicator& communicator, std::size_t bytes, const std::string& algorithm,
                int ports, bool registers) {
  Shared first(communicator, size_of(communicator) * bytes);
  Shared second(communicator, size_of(communicator) * bytes);
  auto source = communicator.allocate<unsigned char>(bytes);
  allrail::CallOptions options;
  options.algorithm = algorithm;
  options.ports = ports;
  const std::uint64_t before = registrations(communicator);
  for (std::uint64_t number = 1; number <= 12; ++number) {
    Span receive = (number < 7 && number % 2 == 0 ? second : first).whole();
    const std::size_t part = number % 5 == 4 ? bytes / 3 : bytes;
    receive = receive.subspan(number % 5 == 4 ? bytes - part : 0, size_of(communicator) * part);
    const auto turn = static_cast<int>(number) + communicator.rank();
    const int kind = number < 10 ? static_cast<int>(number % 3) : 0;
    call(communicator, receive, options, number, kind, Span(source).first(part), turn % 3 == 0);
  }
  require(registrations(communicator) == before || registers, communicator,
          "a call into a NodeBuffer registered memory");
  first.check_around();
  second.check_around();
}

/// Blocks of their own length; then displaced, in reverse order and with gaps.
void check_uneven(Communicator& communicator, std::size_t most) {
  const std::size_t ranks = size_of(communicator);
  const auto me = static_cast<std::size_t>(communicator.rank());
  std::vector<std::size_t> counts(ranks), places(ranks), displacements(ranks);
  std::size_t total = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    counts[rank] = rank == 1 ? 0 : most - rank * (most / 20);
    places[rank] = total;
    total += counts[rank];
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    displacements[rank] = total - places[rank] - counts[rank] + (ranks - rank) * 3;
  }
  Shared shared(communicator, total + ranks * 3);
  Bytes send(counts[me]);
  for (std::uint64_t number = 1; number <= 6; ++number) {
    fill_pattern(send, communicator.rank(), number);
    const bool is_displaced = number % 2 == 0;
    const Span receive = is_displaced ? shared.whole() : shared.whole().first(total);
    if (is_displaced) {
      communicator.allgatherv(send, receive, counts, displacements);
    } else {
      communicator.allgatherv(send, receive, counts);
    }
    if ((me + number) % 2 == 0) sleep_seconds(0.003);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t place = is_displaced ? displacements[rank] : places[rank];
      check_block(communicator, receive.subspan(place, counts[rank]), rank, number,
                  is_displaced ? "displaced" : "uneven");
    }
  }
  shared.check_around();
}

/// Plans into two NodeBuffers that run at the same time, and one that is in place.
void check_plans(Communicator& communicator, std::size_t bytes) {
  const auto me = static_cast<std::size_t>(communicator.rank());
  Shared first(communicator, size_of(communicator) * bytes);
  Shared second(communicator, size_of(communicator) * bytes);
  Bytes send(bytes);
  auto one = communicator.plan_allgather(send, first.whole());
  const Span mine = second.whole().subspan(me * bytes, bytes);
  auto other = communicator.plan_allgather(mine, second.whole());
  const std::uint64_t before = registrations(communicator);
  for (std::uint64_t number = 1; number <= 5; ++number) {
    communicator.barrier();
    fill_pattern(send, communicator.rank(), number);
    fill_pattern(mine, communicator.rank(), number + 100);
    one.start();
    other.start();
    while (!one.test()) {
    }
    other.wait();
    for (std::size_t rank = 0; rank < size_of(communicator); ++rank) {
      const std::size_t place = rank * bytes;
      check_block(communicator, first.whole().subspan(place, bytes), rank, number, "a plan");
      check_block(communicator, second.whole().subspan(place, bytes), rank, number + 100,
                  "a plan in place");
    }
  }
  require(registrations(communicator) == before, communicator, "a plan registered memory");
}

}  // namespace

int run_node_buffers(const Arguments& arguments) {
  std::optional<Communicator> communicator(Communicator::world());
  const auto ports = static_cast<int>(arguments.number("ports", 0));
  const bool registers = arguments.number("registers", 0) != 0;
  for (const std::string& algorithm : arguments.texts("algorithms", "auto")) {
    for (const std::int64_t bytes : arguments.numbers("sizes", "0,1,8,1000,71680,300001,3145728")) {
      check_size(*communicator, static_cast<std::size_t>(bytes),
                 algorithm == "auto" ? "" : algorithm, ports, registers);
    }
  }
  check_uneven(*communicator, 70);
  check_uneven(*communicator, 300'001);
  for (const std::size_t bytes : {0UL, 9UL, 100'000UL}) check_plans(*communicator, bytes);
  auto survivor = communicator->allocate_node_shared<int>(1000);
  auto moved = std::move(survivor);
  const auto none = communicator->allocate_node_shared<double>(0);
  require(none.empty() && survivor.empty() && moved.size() == 1000, *communicator,
          "a NodeBuffer has not the size that it must have");
  if (communicator->node_rank() == 0) moved[999] = 999;
  communicator->barrier();
  const int rank = communicator->rank();
  communicator.reset();
  say("rank " + std::to_string(rank) + " node-buffers done");
  return moved[999] == 999 ? 0 : 1;
}

/// A rank writes into its block as soon as a call returns there: other nodes must not see that.
int run_scribble(const Arguments& arguments) {
  auto communicator = Communicator::world();
  const auto bytes = static_cast<std::size_t>(arguments.number("bytes", 1000));
  const auto me = static_cast<std::size_t>(communicator.rank());
  const auto nodes = arguments.numbers("node-of", "");
  Shared shared(communicator, size_of(communicator) * bytes);
  allrail::CallOptions options;
  options.algorithm = arguments.text("algorithm", "smp-direct");
  options.ports = 1;
  Bytes send(bytes);
  for (std::uint64_t number = 1; number <= 40; ++number) {
    fill_pattern(send, communicator.rank(), number);
    communicator.allgather(send, shared.whole(), options);
    std::ranges::fill(shared.whole().subspan(me * bytes, bytes), kUntouched);
    for (std::size_t rank = 0; rank < size_of(communicator); ++rank) {
      if (nodes[rank] == nodes[me]) continue;
      check_block(communicator, shared.whole().subspan(rank * bytes, bytes), rank, number,
                  "of another node");
    }
    communicator.barrier();
  }
  say("rank " + std::to_string(me) + " scribble done");
  return 0;
}

}  // namespace probe
