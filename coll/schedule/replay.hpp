#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coll/schedule/schedule.hpp"
#include "coll/schedule/shape.hpp"

// Runs the schedules of all ranks symbolically, one of many possible interleavings per seed. Memory
// holds where every byte came from instead of the byte itself; puts are delivered in random pieces
// at random later times, sources being read again at delivery; flags and done counts are seen at
// once. A sequence of calls shares a ring of slots: call c uses slot c mod slots, and whoever
// writes into the slot of a node waits until all ranks of that node are done with the call that had
// it before.
namespace allrail::schedule {

enum class Fault : std::uint8_t {
  ReadBeforeArrival,  // a copy or put read bytes that this call had not brought there
  WrongBytes,         // at the end a place in a receive buffer has the wrong bytes
  MissingBytes,       // at the end a place in a receive buffer was never written
  WrittenTwice,       // a byte of this call was written over within the call
  OverwrittenInUse,   // two calls met in one slot, or in a shared receive buffer that is still read
  SourceModified,     // the source of a put changed while it was in flight
  OutOfBounds,        // outside the send buffer, the slot or the receive buffer
  PutAwaitMismatch,   // puts and awaits of a pair differ in number, size, place, round or port
  HeaderMissing,      // no header in the first region of a put into a slot, or at header_offsets
  FlagNeverRaised,    // a rank waits for a stage that its node never publishes
  FlagNotRising,      // a flag is set to a stage it has reached already, or above schedule.stages
  Deadlock,           // nobody can go on
  OwnerReturned,      // memory of a rank was read after it had ended the call
  NoSuchPeer,         // a step names a rank, or a local rank, that does not exist
};

struct Violation {
  Fault fault;
  std::string sentence;
};

/// Bytes of the send buffer of rank `from` that a rank has in its receive buffer in the end.
struct Received {
  int from;
  std::uint64_t from_offset;
  std::uint64_t to_offset;
  std::uint64_t bytes;
};

/// What a collective is for, by rank: the bytes that are given, and what is there in the end.
struct Purpose {
  std::vector<std::uint64_t> send_bytes;
  std::vector<std::vector<Received>> received;
};

/// An allgather of this shape.
Purpose purpose_of_allgather(const Shape& shape);

/// One collective call: its shape and the schedule of every rank, by rank.
struct ReplayCall {
  ReplayCall(Shape call_shape, std::vector<Schedule> rank_schedules, bool shared = false)
      : shape(std::move(call_shape)),
        schedules(std::move(rank_schedules)),
        node_shared(shared),
        purpose(purpose_of_allgather(shape)) {}
  ReplayCall(Shape call_shape, std::vector<Schedule> rank_schedules, Purpose call_purpose)
      : shape(std::move(call_shape)),
        schedules(std::move(rank_schedules)),
        purpose(std::move(call_purpose)) {}

  Shape shape;
  std::vector<Schedule> schedules;
  // The ranks of a node receive into one buffer, the same in all calls that say so. A rank reads
  // its result from the end of the call to its first step in the next one.
  bool node_shared = false;
  Purpose purpose;
};

struct ReplayOptions {
  std::uint64_t seed = 1;
  int slots = 1;          // ring of slots per node
  bool done_rule = true;  // false: writers do not wait for the previous user of a slot
};

/// All calls must have the same node map. The list is empty when nothing is wrong; it stops growing
/// at a few dozen entries.
std::vector<Violation> replay(std::span<const ReplayCall> calls, const ReplayOptions& options);

/// The part that needs no interleaving: puts against awaits, stages awaited against published.
std::vector<Violation> check_pairs(const ReplayCall& call);

}  // namespace allrail::schedule
