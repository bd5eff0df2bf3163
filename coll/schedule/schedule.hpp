#pragma once

#include <cstdint>
#include <vector>

// What one rank does in one call, as data, with byte offsets: ready for the executor, the replay
// checker and the cost model.
namespace allrail::schedule {

/// The user's send buffer, the user's receive buffer, the slot memory of this call on a node, or
/// the lines that the flags of this call lie in. Slot offsets count from the start of the node's
/// slot, also where ranks have parts of their own. The line of a local rank begins at its number
/// times kLineStride and has room for kLineBytes; whoever sees the flag has the bytes as well.
enum class Memory : std::uint8_t { Send, Receive, Slot, Lines };
inline constexpr std::uint64_t kLineBytes = 40;
inline constexpr std::uint64_t kLineStride = 64;

enum class StepKind : std::uint8_t {
  Copy,  // `bytes` from (from, from_offset) to (to, to_offset), all mine or of my node's slot
  // The same where the memory of the user is envelopes (coll/envelopes.hpp), of the one for rank
  // `peer` or from it.
  Pack,
  Unpack,
  // Writes the header of a region at slot offset to_offset (bytes = kHeaderBytes). Where peers put
  // into a receive buffer that the ranks of a node share, they may do so from here on.
  Stamp,
  Put,         // `bytes` from my (from, from_offset) to (to, to_offset) of rank `peer`
  Await,       // until the next put of rank `peer` has landed in my (to, to_offset), `bytes` long
  Publish,     // raises my flag to `stage`
  AwaitLocal,  // until the flag of local rank `peer` of my node is at least `stage`
  AwaitSent,   // until the memory that my puts were read from may change: nothing is sent again
  // Raises my flag to `stage`, and tells with it where (from, from_offset) lies, which is not slot
  // memory: `bytes` that the ranks of my node may read from here on. Once in a call.
  Offer,
  // `bytes` of what local rank `peer` has offered, from from_offset there, to (to, to_offset).
  Read,
  // The first rank of the node that comes here makes the copies in `once` of its schedule; the
  // others wait until they are made. Not more than one in a call.
  Once,
};

/// `round` is the step of the k-port model in which this runs (0 first). `port` numbers the puts of
/// a round: puts of one port (a transfer that had to be cut) go one after the other, different
/// ports at the same time. An Await carries round and port of its put.
struct Step {
  StepKind kind = StepKind::Copy;
  Memory from = Memory::Send;
  Memory to = Memory::Receive;
  std::uint16_t round = 0;
  std::uint16_t port = 0;
  std::int32_t peer = -1;
  std::uint32_t stage = 0;
  // An Await into the slot says here where the header of the sender's own region lands, if it is
  // part of this put, and repeats to_offset otherwise.
  std::uint64_t from_offset = 0;
  std::uint64_t to_offset = 0;
  std::uint64_t bytes = 0;

  friend bool operator==(const Step&, const Step&) = default;
};

/// A region is the slot area of one participant: header, then bytes padded to kHeaderBytes. Its
/// owner writes the header once; after that it travels with the region as ordinary bytes.
inline constexpr std::uint64_t kHeaderBytes = 64;
constexpr std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + kHeaderBytes - 1) / kHeaderBytes * kHeaderBytes;
}

/// Where peers tell this rank of their user memory: a table in its slot, of its own ready token and
/// one for every node, or where every rank talks for itself one for every rank.
struct TokenTable {
  std::uint64_t offset = 0;
  bool of_every_rank = false;
};

/// `slot_bytes` is what the node of this rank needs for this call and the same on all its ranks.
/// `stages` is the highest stage that any flag of this node reaches, the same on all its ranks.
struct Schedule {
  std::vector<Step> steps;
  std::uint64_t slot_bytes = 0;
  std::uint32_t stages = 0;
  int rounds = 0;
  int lane = 0;  // of a leader: the first that it leads, so that leaders begin with different rails
  // Where the headers of the others' regions lie in my slot once all steps have run.
  std::vector<std::uint64_t> header_offsets{};
  TokenTable token_table{};
  // Copies of the Once step, between memories that all ranks of the node share, and so the same on
  // all of them.
  std::vector<Step> once{};
};

}  // namespace allrail::schedule
