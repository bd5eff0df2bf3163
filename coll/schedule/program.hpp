#pragma once

#include <cstdint>
#include <vector>

#include "coll/schedule/model.hpp"
#include "coll/schedule/schedule.hpp"

// A schedule with its offsets left out: what the model needs to know of it, 32 bytes for every step
// that others can see. Schedules of all ranks would not fit into memory at once; their programs do.
namespace allrail::schedule {

enum class Act : std::uint8_t {
  Put,        // `amount` bytes to rank `peer`
  PutRest,    // the same of a transfer that had to be cut and has had its start-up
  Await,      // the next put of rank `peer`
  Raise,      // my flag to stage `amount`
  AwaitFlag,  // of local rank `peer`, until it is at stage `amount`
  AwaitSent,  // until all my puts have landed
  End,
};

struct Action {
  double work_s = 0;        // of the core, before it
  double copied_bytes = 0;  // in that, of all ranks that this one stands for
  std::uint64_t amount = 0;
  std::int32_t peer = -1;
  // The local rank into whose memory that was received which is copied: -1: my own.
  std::int16_t near = -1;
  std::uint8_t rail = 0;  // of a put that is not striped
  Act act = Act::End;
};
static_assert(sizeof(Action) == 32);

/// Ends with Act::End.
using Program = std::vector<Action>;

/// What the ranks of a node do in a call where one rank stands for several of them: the node phase
/// in closed form. Its copies are what all of them copy together.
struct NodePhase {
  double give_share = 1;  // of copies from the send buffer into the slot, done by one of them
  double keep_share = 1;  // of copies from the send to the receive buffer
  double take_share = 1;  // of copies from the slot into the receive buffer
  double give_ranks = 1;  // how many ranks do so at the same time
  double keep_ranks = 1;
  double take_ranks = 1;
  double flags_before_puts = 0;  // that the one who talks awaits before its first put
  double flags_at_end = 0;       // that the last of them awaits
};

/// With `joins_pieces` transfers that had to be cut count as one put and one await.
Program compile(const Schedule& schedule, const Model& model, const NodePhase& phase = {},
                bool joins_pieces = false);

}  // namespace allrail::schedule
