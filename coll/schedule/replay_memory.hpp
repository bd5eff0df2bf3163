#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coll/schedule/replay.hpp"

// The symbolic memory of the replay checker: for every byte of a slot or a receive buffer, its
// origin.
namespace allrail::schedule {

/// Identifies one byte of one rank's block, or of its region's header, in one call. 0 is nothing.
using Origin = std::uint32_t;

/// Origins are numbered call by call: all blocks by rank, then all headers by rank.
class Origins {
 public:
  explicit Origins(std::span<const ReplayCall> calls);

  Origin block_byte(int call, int rank, std::uint64_t offset) const {
    return blocks_[call][rank] + static_cast<Origin>(offset);
  }
  Origin header_byte(int call, int rank, std::uint64_t offset) const {
    return headers_[call] + static_cast<Origin>(rank * kHeaderBytes + offset);
  }
  /// The origins of a call: its first one, and the first one of the next call.
  struct Span {
    Origin first, end;
    bool holds(Origin origin) const { return origin >= first && origin < end; }
  };
  Span of(int call) const { return {starts_[call], starts_[call + 1]}; }
  bool of_call(int call, Origin origin) const { return of(call).holds(origin); }
  bool of_later_call(int call, Origin origin) const { return origin >= starts_[call + 1]; }
  bool starts_header(int call, Origin origin) const {
    return of_call(call, origin) && origin >= headers_[call] &&
           (origin - headers_[call]) % kHeaderBytes == 0;
  }

 private:
  std::vector<Origin> starts_;  // by call, and the end
  std::vector<Origin> headers_;
  std::vector<std::vector<Origin>> blocks_;
};

/// A range of symbolic memory; `origins` is null when it is out of bounds, and for send buffers,
/// which never change and are therefore not stored.
struct Range {
  Origin* origins = nullptr;
  Origin first = 0;  // of a send buffer: its bytes count up from here
  bool in_bounds = false;

  Origin at(std::uint64_t i) const {
    return origins != nullptr ? origins[i] : first + static_cast<Origin>(i);
  }
};

class ReplayMemory {
 public:
  ReplayMemory(std::span<const ReplayCall> calls, int slots);

  Range range(int call, int rank, Memory memory, std::uint64_t offset, std::uint64_t bytes);
  const std::vector<Origin>& receive(int call, int rank) const {
    return calls_[call].node_shared ? shared_[calls_[call].shape.map.node_of[rank]]
                                    : receive_[call][rank];
  }
  /// Bytes of it that belong to the result of this call.
  std::uint64_t receive_bytes(int call) const { return receive_bytes_[call]; }
  const Origins& origins() const { return origins_; }

 private:
  std::span<const ReplayCall> calls_;
  Origins origins_;
  std::vector<std::vector<std::vector<Origin>>> slots_;    // by slot of the ring, by node
  std::vector<std::vector<std::vector<Origin>>> lines_;    // likewise
  std::vector<std::vector<std::vector<Origin>>> receive_;  // by call, by rank; empty where shared
  std::vector<std::vector<Origin>> shared_;                // by node
  std::vector<std::uint64_t> receive_bytes_;               // by call
};

}  // namespace allrail::schedule
