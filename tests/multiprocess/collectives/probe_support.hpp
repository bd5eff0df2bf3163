// What the modes of collective-probe share: arguments, bytes that only one block can have, one
// call with a check of every byte, and the line that reports an Error.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <allrail/allrail.hpp>

namespace probe {

constexpr int kErrorCode = 42;  ///< exit code of a rank that reported an Error

/// Words of the form NAME=VALUE, and the first one without `=` as the mode.
class Arguments {
 public:
  Arguments(int argc, char** argv);
  const std::string& mode() const { return mode_; }
  std::string text(const std::string& name, const std::string& fallback) const;
  std::int64_t number(const std::string& name, std::int64_t fallback) const;
  double seconds(const std::string& name, double fallback) const;
  std::vector<std::string> texts(const std::string& name, const std::string& fallback) const;
  std::vector<std::int64_t> numbers(const std::string& name, const std::string& fallback) const;

 private:
  std::string mode_;
  std::map<std::string, std::string> values_;
};

/// Numbers without a pattern, the same on all ranks.
std::uint64_t scattered(std::uint64_t number);

/// Which points of a grid a test makes calls for: one of every so many in a row (`every`), and
/// which of them has no pattern, so that no value of an inner loop is left out for ever. Tests that
/// give `first` 0 to every - 1 have all points.
class Sample {
 public:
  explicit Sample(const Arguments& arguments)
      : every_(static_cast<std::uint64_t>(arguments.number("every", 1))),
        first_(static_cast<std::uint64_t>(arguments.number("first", 0))) {}
  /// Whether the next point is one.
  bool next() {
    const std::uint64_t point = points_++;
    return point % every_ == (scattered(point / every_) + first_) % every_;
  }

 private:
  std::uint64_t every_;
  std::uint64_t first_;
  std::uint64_t points_ = 0;
};

/// CLOCK_MONOTONIC, the clock of Python's time.monotonic(): both sides can compare.
double now_seconds();
void sleep_seconds(double seconds);

/// One line, written at once, on standard output.
void say(const std::string& line);
std::string describe(const allrail::Error& error);
/// Over all rails. A rail of this rank counts every time that user memory is registered with it.
std::uint64_t registrations(allrail::Communicator& communicator);
/// Also over all rails: in how many chunks this rank put.
std::uint64_t chunks_sent(allrail::Communicator& communicator);

/// Fills `block` with bytes that depend on rank, call and place.
void fill_pattern(std::span<unsigned char> block, int rank, std::uint64_t call);
/// The first place where `block` differs from that, or -1.
std::int64_t find_wrong_byte(std::span<const unsigned char> block, int rank, std::uint64_t call);

struct WrongBytes : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One call, the same on all ranks.
struct Exchange {
  enum class Kind { Barrier, Allgather, Allgatherv, Displaced };
  Kind kind = Kind::Allgather;
  std::size_t element_bytes = 1;           // 1 or 8
  std::vector<std::size_t> counts;         // elements of every rank
  std::vector<std::size_t> displacements;  // only where displaced
  std::size_t receive_elements = 0;        // of the whole receive buffer
  bool in_place = false;
  std::uint64_t number = 0;
  allrail::CallOptions options;

  std::string text() const;
  std::size_t offset_bytes(std::size_t rank) const;
};

Exchange same_from_all(int ranks, std::size_t bytes);
Exchange uneven(std::vector<std::size_t> counts, std::size_t element_bytes);
/// The same with blocks in another order and gaps between them, which may not be touched.
void displace(Exchange& exchange, std::size_t gap);

/// Makes calls and checks them. Keeps its memory, so that the next call finds other bytes there.
class Caller {
 public:
  explicit Caller(allrail::Communicator& communicator) : communicator_(communicator) {}
  /// @throws WrongBytes where a byte of a block, of a gap, around the buffer or of the send buffer
  /// is not what it must be.
  void make(const Exchange& exchange);

 private:
  template <class Element>
  void call(const Exchange& exchange, std::size_t send_place, std::size_t receive_place);
  void check(const Exchange& exchange, std::size_t send_place, std::size_t receive_place);

  allrail::Communicator& communicator_;
  std::vector<unsigned char> send_;
  std::vector<unsigned char> receive_;
  std::vector<unsigned char> expected_;
};

int run_grid(const Arguments& arguments);
int run_sequence(const Arguments& arguments);
int run_rooted_grid(const Arguments& arguments);
int run_rooted_sequence(const Arguments& arguments);
int run_rooted_registrations(const Arguments& arguments);
int run_rooted_leaders(const Arguments& arguments);
int run_repeats(const Arguments& arguments);
int run_repeats_put(const Arguments& arguments);
int run_splits(const Arguments& arguments);
int run_split_plans(const Arguments& arguments);
int run_split_lifetimes(const Arguments& arguments);
int run_split_refused(const Arguments& arguments);
int run_split_switches(const Arguments& arguments);
int run_split_loop(const Arguments& arguments);
int run_split_fault(const Arguments& arguments);
int run_huge(const Arguments& arguments);
int run_loop(const Arguments& arguments);
int run_leave(const Arguments& arguments);
int run_leave_root(const Arguments& arguments);
int run_die_in_call(const Arguments& arguments);
int run_bad_input(const Arguments& arguments);
int run_two_threads(const Arguments& arguments);
int run_plans(const Arguments& arguments);
int run_mixed_plans(const Arguments& arguments);
int run_barriers(const Arguments& arguments);
int run_pace(const Arguments& arguments);
int run_stream(const Arguments& arguments);
int run_plan_loop(const Arguments& arguments);
int run_plan_helper(const Arguments& arguments);
int run_plan_misuse(const Arguments& arguments);
int run_buffers(const Arguments& arguments);
int run_remap(const Arguments& arguments);
int run_too_large(const Arguments& arguments);
int run_buffer_plans(const Arguments& arguments);
int run_buffer_gone(const Arguments& arguments);
int run_node_buffers(const Arguments& arguments);
int run_scribble(const Arguments& arguments);
/// From here on the system refuses this process to read memory of others (EPERM).
void forbid_reading();
/// From here on others may not read memory of this process without being privileged, as after a
/// change of its user.
void hide_memory();
int run_unreadable(const Arguments& arguments);
int run_forbid_late(const Arguments& arguments);
int run_node_buffer_faults(const Arguments& arguments);

}  // namespace probe
