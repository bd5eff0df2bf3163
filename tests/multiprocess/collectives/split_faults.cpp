// Modes in which something goes wrong on a communicator that was split off: split-loop,
// split-fault.
#include <unistd.h>

#include "tests/multiprocess/collectives/split_support.hpp"

namespace probe {
namespace {

using allrail::Communicator;

struct Grid {
  Communicator world = Communicator::world();
  Communicator row, column;

  explicit Grid(int columns)
      : row(*world.split(world.rank() / columns, world.rank())),
        column(*world.split(world.rank() % columns, world.rank())) {}
  std::string prefix() const { return "rank " + std::to_string(world.rank()); }
};

/// What a rank does until the error, and the first calls of the others behind it.
template <class Work>
int report(Grid& grid, const Work& work) {
  try {
    work();
    say(grid.prefix() + " done");
    return 0;
  } catch (const allrail::Error& error) {
    say(grid.prefix() + " error: " + describe(error));
  }
  for (Communicator* const other : {&grid.world, &grid.row, &grid.column}) {
    try {
      other->barrier();
      say(grid.prefix() + " again: no error");
      return 1;
    } catch (const allrail::Error& error) {
      say(grid.prefix() + " again: " + describe(error));
    }
  }
  return kErrorCode;
}

void exchange(Communicator& communicator, std::size_t bytes, std::uint64_t number,
              const allrail::CallOptions& options = {}) {
  Exchange call = same_from_all(communicator.size(), bytes);
  call.number = number;
  call.options = options;
  Caller(communicator).make(call);
}

void loop(Communicator& one, Communicator& other, std::size_t bytes, double seconds) {
  const double end = now_seconds() + seconds;
  for (std::uint64_t number = 1; now_seconds() < end; ++number) {
    exchange(one, bytes, number);
    exchange(other, bytes, number);
  }
}

}  // namespace

/// With `where=elsewhere` only the first row makes calls. Of the others the first rank waits for
/// ranks that are busy with something else.
int run_split_loop(const Arguments& arguments) {
  const auto columns = static_cast<int>(arguments.number("columns", 2));
  Grid grid(columns);
  const auto bytes = static_cast<std::size_t>(arguments.number("bytes", 64));
  grid.world.barrier();
  say(grid.prefix() + " ready, pid " + std::to_string(::getpid()));
  return report(grid, [&] {
    if (arguments.text("where", "") != "elsewhere") return loop(grid.row, grid.column, bytes, 30);
    if (grid.world.rank() < columns) return loop(grid.row, grid.row, bytes, 30);
    if (grid.row.rank() != 0) sleep_seconds(arguments.seconds("busy", 5));
    grid.row.barrier();
    grid.column.barrier();
  });
}

/// Rank 1 does something else in a call of its row.
int run_split_fault(const Arguments& arguments) {
  Grid grid(static_cast<int>(arguments.number("columns", 2)));
  const std::string kind = arguments.text("case", "");
  const auto bytes = static_cast<std::size_t>(arguments.number("bytes", 1000));
  const bool odd = grid.world.rank() == 1;
  allrail::CallOptions limited;
  limited.timeout = std::chrono::milliseconds(1000);
  return report(grid, [&] {
    // Who is still in the last of these when rank 1 goes wrong is told so there.
    for (std::uint64_t number = 1; number <= 10; ++number) {
      exchange(grid.row, bytes, number);
      exchange(grid.column, bytes, number);
    }
    if (odd && kind == "late") sleep_seconds(4);
    if (odd && kind == "other-communicator") grid.world.barrier();
    if (odd && kind == "arguments") {
      std::vector<unsigned char> send(10), receive(7);
      grid.row.allgather(send, receive);
    }
    exchange(grid.row, odd && kind == "other-size" ? bytes + 8 : bytes, 99,
             kind == "late" || kind == "other-communicator" ? limited : allrail::CallOptions{});
    // Rows in which nothing is wrong wait here for those of the first row.
    grid.column.barrier();
  });
}

}  // namespace probe
