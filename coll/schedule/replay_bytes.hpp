#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coll/schedule/replay.hpp"
#include "coll/schedule/replay_memory.hpp"

// What a replay asks of bytes: that they are there when they are read, that nothing in use is
// written over, that headers stand where they are looked for, and that every result is right.
namespace allrail::schedule {

/// What was found wrong, up to a few dozen entries.
class Findings {
 public:
  void add(Fault fault, std::string sentence);
  /// A finding begins so.
  static std::string where(int call, int rank, const Step& step);
  std::vector<Violation> take() { return std::move(violations_); }

 private:
  std::vector<Violation> violations_;
};

class ReplayBytes {
 public:
  ReplayBytes(std::span<const ReplayCall> calls, int slots, Findings& findings)
      : calls_(calls), memory_(calls, slots), findings_(findings) {}

  Range range(int call, int rank, Memory memory, std::uint64_t offset, std::uint64_t bytes) {
    return memory_.range(call, rank, memory, offset, bytes);
  }
  /// The header that `rank` writes in `call`, as something to write from.
  Range header_of(int call, int rank) const {
    return {nullptr, memory_.origins().header_byte(call, rank, 0), true};
  }
  bool of_later_call(int call, Origin origin) const {
    return memory_.origins().of_later_call(call, origin);
  }
  bool has_header(int call, const Range& range, const Step& step) const {
    return step.bytes >= kHeaderBytes && is_header(call, range);
  }

  bool check_bounds(int call, int rank, const Step& step, const Range& range);
  /// Reports the first byte of a range that this call has not brought there.
  void check_read(int call, int rank, const Step& step, const Range& range);
  /// Writes origins read from `source`; what is not of this call becomes nothing.
  void write(int call, int rank, const Step& step, const Range& to, std::uint64_t bytes,
             const Range& source);
  /// The executor looks for headers at these places as soon as a call has run its last step.
  void check_headers(int call, int rank);
  void check_result(int call, int rank);

 private:
  bool is_header(int call, const Range& range) const;

  std::span<const ReplayCall> calls_;
  ReplayMemory memory_;
  Findings& findings_;
};

}  // namespace allrail::schedule
