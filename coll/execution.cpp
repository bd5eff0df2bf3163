#include "coll/execution.hpp"

#include <atomic>
#include <cstring>
#include <utility>

#include "coll/envelopes.hpp"
#include "coll/offer.hpp"
#include "coll/ready_token.hpp"
#include "lib/base/copy.hpp"
#include "shm/once.hpp"

namespace allrail::coll {

using schedule::Memory;
using schedule::Step;
using schedule::StepKind;

namespace {
// A quarter of the ring of calls in between, so that counts are never older than a ring can bear.
constexpr std::uint64_t kHeadersEvery = 4;
// Puts that are not striped but take a rail's time go over another rail after so many calls, so
// that a stream of them uses all rails: half of the ring of calls in between, so that a full ring
// lies on two.
constexpr std::uint64_t kTurnCalls = 8;
constexpr std::uint64_t kMostTurns = 1024;  // the port of a put stays a small number
static_assert(schedule::kLineStride == sizeof(shm::Flag) &&
              schedule::kLineBytes == shm::kFlagPayloadBytes);
}  // namespace

Execution::Execution(ExecutionContext& context) : context_(context), team_(context.team) {}

void Execution::start(std::size_t steps_done) {
  slot_ = team_.segment->bytes().data() + team_.slot_offset(team_.node, call_.identity.slot.number);
  slot_is_free_ = false;
  next_step_ = steps_done;
  next_await_ = 0;
  puts_left_ = 0;
  token_of_ = -1;
  told_what_arrived_ = acknowledged_ = false;
  stamp_offset_ = UINT64_MAX;
  mismatch_ = {};
  failed_read_ = {};
  await_numbers_.clear();
  user_puts_.clear();
  await_steps_.clear();
  announced_ = 0;
  state_ = State::Running;
  if (call_.has_puts) find_puts();
}

void Execution::find_puts() {
  for (const Step& step : call_.schedule->steps) {
    if (step.kind == StepKind::Put) ++puts_left_;
    if (step.kind == StepKind::Await) await_steps_.push_back(&step);
  }
}

/// As many as the fabric has places for: a long ring awaits more puts of one neighbour than may be
/// open at once.
void Execution::announce_awaits() {
  for (; announced_ < await_steps_.size(); ++announced_) {
    const Step& step = *await_steps_[announced_];
    if (team_.is_local(step.peer)) {
      const auto local = static_cast<std::size_t>(team_.local_rank_of(step.peer));
      await_numbers_.push_back(++context_.local_awaited[local]);
    } else {
      if (!team_.fabric->can_expect(step.peer)) return;
      await_numbers_.push_back(team_.fabric->expect(step.peer, step.bytes));
    }
  }
}

bool Execution::advance(bool in_turn) {
  if (in_turn && announced_ < await_steps_.size()) announce_awaits();
  if (!slot_is_free_ && !slot_free()) return false;
  const auto& steps = call_.schedule->steps;
  const Step* const end = steps.data() + steps.size();
  for (const Step* step = steps.data() + next_step_; step != end; ++step, ++next_step_) {
    if (!run_step(*step, in_turn)) return false;
  }
  return true;
}

// What advance() takes for every step of a small call is inline: a call of its own would cost as
// much as most steps.
inline bool Execution::slot_free() {
  slot_is_free_ = context_.done_counts.my_node_is_done(call_.identity.slot.previous_call);
  return slot_is_free_;
}

[[gnu::always_inline]] inline bool Execution::run_step(const Step& step, bool in_turn) {
  switch (step.kind) {
    case StepKind::Copy:
      copy(step);
      return true;
    case StepKind::Pack:
      call_.buffers->envelopes->pack(static_cast<std::size_t>(step.peer), call_.slice_offset,
                                     step.bytes, slot_ + step.to_offset);
      return true;
    case StepKind::Unpack:
      call_.buffers->envelopes->unpack(static_cast<std::size_t>(step.peer), call_.slice_offset,
                                       step.bytes, slot_ + step.from_offset);
      return true;
    case StepKind::Stamp:
      stamp(step);
      return true;
    case StepKind::Put:
      return in_turn && put(step);
    case StepKind::Await:
      return await(step);
    case StepKind::Publish:
      shm::raise(*team_.segment, call_.identity.slot.number, team_.local_rank,
                 shm::flag_value(call_.identity.number, step.stage), call_.identity.flag_stamp,
                 context_.done_counts.mine());
      return true;
    case StepKind::AwaitLocal:
      return await_local(step);
    case StepKind::AwaitSent:
      return await_sent();
    case StepKind::Offer:
      offer(step);
      return true;
    case StepKind::Read:
      return read(step);
    case StepKind::Once:
      return once();
  }
  return true;
}

/// What local rank 0 tells with its flag of this call; the lines of the others follow.
inline std::byte* Execution::lines() const {
  return team_.segment->flag(call_.identity.slot.number, 0).payload;
}

inline const std::byte* Execution::source(Memory memory, std::uint64_t offset) const {
  switch (memory) {
    case Memory::Send:
      return call_.send + offset;
    case Memory::Receive:
      return call_.receive + offset;
    case Memory::Slot:
      return slot_ + offset;
    case Memory::Lines:
      return lines() + offset;
  }
  return nullptr;
}

inline std::byte* Execution::target(Memory memory, std::uint64_t offset) const {
  if (memory == Memory::Receive) return call_.receive + offset;
  return (memory == Memory::Slot ? slot_ : lines()) + offset;
}

inline void Execution::copy(const Step& step) {
  const std::byte* from = source(step.from, step.from_offset);
  std::byte* to = target(step.to, step.to_offset);
  // In place the send buffer is this rank's block of the receive buffer.
  if (from != to) base::copy_block(to, from, step.bytes);
}

void Execution::stamp(const Step& step) {
  BlockHeader header;
  header.stamp = call_.identity.stamp;
  header.call = call_.identity.number;
  header.done = context_.done_counts.of_my_node(call_.identity.number);
  header.description = call_.description;
  header.owner = team_.rank;
  header.pace_word = call_.pace_word;
  std::memcpy(slot_ + step.to_offset, &header, sizeof header);
  stamp_offset_ = step.to_offset;
  stamped_done_ = header.done;
  if (call_.zero_copy()) {
    write_token(*call_.window, call_.window_offset,
                std::span<std::byte, kTokenBodyBytes>(
                    slot_ + step.to_offset + schedule::kHeaderBytes, kTokenBodyBytes));
  }
}

const ReadyToken* Execution::token_of(int peer) {
  if (token_of_ == peer) return &token_;
  const schedule::TokenTable& table = call_.schedule->token_table;
  const int owner = table.of_every_rank ? peer : team_.node_of(peer);
  const std::byte* token = slot_ + table.offset +
                           kTokenBytes * static_cast<std::uint64_t>(owner + 1) +
                           schedule::kHeaderBytes;
  if (!read_token(std::span<const std::byte, kTokenBodyBytes>(token, kTokenBodyBytes), token_)) {
    mismatch_.peer = peer;  // its token makes no sense: a call that is not ours
    return nullptr;
  }
  token_of_ = peer;
  return &token_;
}

int Execution::port_of(const Step& step) const {
  const int port = call_.schedule->lane + step.round + step.port;
  if (step.bytes < kTurnBytes) return port;
  return port + static_cast<int>(call_.identity.number / kTurnCalls % kMostTurns);
}

/// Whether the peer's node is done with the call that had the slot.
bool Execution::slot_is_free_at(int peer) {
  DoneCounts& done_counts = context_.done_counts;
  const std::uint64_t previous_call = call_.identity.slot.previous_call;
  if (done_counts.node_of_is_done(peer, previous_call)) return true;
  // It believes to have said so by what it put here in this very call, which is awaited later.
  for (std::size_t i = next_await_; i < announced_; ++i) {
    const Step& step = *await_steps_[i];
    const bool is_from_peer = step.peer == peer && step.to == Memory::Slot;
    if (is_from_peer && team_.fabric->arrived(peer, await_numbers_[i])) note_sender(step);
  }
  if (done_counts.node_of_is_done(peer, previous_call)) return true;
  // And it is done when its own puts are acknowledged, which may wait for nothing but this.
  if (!std::exchange(acknowledged_, true)) team_.fabric->acknowledge();
  return false;
}

bool Execution::put(const Step& step) {
  if (team_.is_local(step.peer)) return put_locally(step);
  if (!team_.fabric->can_put(step.peer)) return false;
  transport::Put put;
  put.peer = step.peer;
  put.from = source(step.from, step.from_offset);
  put.bytes = step.bytes;
  put.port = port_of(step);
  put.call = call_.identity.number;
  put.coalesce = call_.continues_stream;
  if (step.to == Memory::Slot) {
    if (!slot_is_free_at(step.peer)) return false;
    put.offset =
        team_.slot_offset(team_.node_of(step.peer), call_.identity.slot.number) + step.to_offset;
  } else {
    const ReadyToken* token = token_of(step.peer);
    if (token == nullptr) return false;
    const std::uint64_t offset = call_.slice_offset + step.to_offset;
    if (!holds(*token, offset, step.bytes)) {
      mismatch_.peer = step.peer;  // it has no room for what this call puts there
      return false;
    }
    put.window = &token->window;
    put.offset = token->offset + offset;
  }
  const std::uint64_t number = team_.fabric->put(put);
  if (step.from != Memory::Slot) user_puts_.push_back({step.peer, number});
  if (step.from == Memory::Slot) note_header_of(step);
  --puts_left_;
  return true;
}

/// What the peer will learn of my node from this put, if a header of mine is in it. The root of a
/// scatter stamps the regions of all others, each of which is the start of a put.
void Execution::note_header_of(const Step& put) {
  if (stamp_offset_ == UINT64_MAX) return;
  if (put.from_offset <= stamp_offset_ && stamp_offset_ < put.from_offset + put.bytes) {
    context_.done_counts.note_header(put.peer, stamped_done_);
    return;
  }
  BlockHeader header;
  std::memcpy(&header, slot_ + put.from_offset, sizeof header);
  if (header.owner == team_.rank) context_.done_counts.note_header(put.peer, header.done);
}

bool Execution::put_locally(const Step& step) {
  base::copy_block(slot_ + step.to_offset, source(step.from, step.from_offset), step.bytes);
  auto& counter = team_.segment->local_puts(team_.local_rank, team_.local_rank_of(step.peer));
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  shm::notify(*team_.segment);
  --puts_left_;
  return true;
}

bool Execution::await(const Step& step) {
  if (next_await_ >= announced_) return false;
  const std::uint64_t number = await_numbers_[next_await_];
  if (team_.is_local(step.peer)) {
    const auto& counter =
        team_.segment->local_puts(team_.local_rank_of(step.peer), team_.local_rank);
    if (counter.load(std::memory_order_acquire) < number) return false;
    if (step.to == Memory::Slot && !header_matches(step)) return false;
  } else {
    if (!team_.fabric->first_chunk_arrived(step.peer, number)) return false;
    if (step.to == Memory::Slot && !header_matches(step)) return false;
    if (!team_.fabric->arrived(step.peer, number)) return false;
    team_.fabric->consume(step.peer, number, port_of(step));
    if (step.to == Memory::Slot) note_sender(step);
  }
  ++next_await_;
  return true;
}

bool Execution::header_matches(const Step& step) {
  BlockHeader header;
  std::memcpy(&header, slot_ + step.to_offset, sizeof header);
  if (!is_of_call(header, call_.identity.stamp, team_.roster->ranks())) {
    mismatch_ = {step.peer, header};
    return false;
  }
  context_.done_counts.note_node(team_.node_of(header.owner), header.done);
  return true;
}

/// What the sender said of itself: slots of its node may be written again by that count.
void Execution::note_sender(const Step& step) {
  BlockHeader header;
  std::memcpy(&header, slot_ + step.from_offset, sizeof header);
  if (!is_of_call(header, call_.identity.stamp, team_.roster->ranks())) return;
  context_.done_counts.note_node(team_.node_of(header.owner), header.done);
}

inline bool Execution::await_local(const Step& step) {
  const shm::Flag& flag = team_.segment->flag(call_.identity.slot.number, step.peer);
  if (!shm::reached(flag, shm::flag_value(call_.identity.number, step.stage))) return false;
  if (flag.stamp.load(std::memory_order_relaxed) != call_.identity.flag_stamp) {
    mismatch_.peer = team_.roster->rank_of_local(step.peer);
    mismatch_.theirs.call = call_.identity.number;
    return false;
  }
  context_.done_counts.note_local(step.peer, flag.done.load(std::memory_order_relaxed));
  return true;
}

void Execution::offer(const Step& step) {
  // Of calls of one slice only.
  const Buffers& buffers = *call_.buffers;
  SharedPlace place = step.from == Memory::Send ? buffers.send_place : buffers.receive_place;
  if (place.buffer == 0) {
    place.offset = reinterpret_cast<std::uintptr_t>(source(step.from, step.from_offset));
  } else {
    place.offset += step.from_offset;
  }
  write_offer(team_.segment->flag(call_.identity.slot.number, team_.local_rank), place);
  shm::raise(*team_.segment, call_.identity.slot.number, team_.local_rank,
             shm::flag_value(call_.identity.number, step.stage), call_.identity.flag_stamp,
             context_.done_counts.mine());
}

/// Its owner may do with its memory what it likes once it was told of an error. It is told behind
/// the abort word: so what was read before that word was set is right, and nothing else counts.
bool Execution::read(const Step& step) {
  const int error_number = read_offer_of(step.peer, step);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (team_.segment->aborted()) return false;
  if (failed_read_.peer >= 0) return false;
  if (error_number == 0) return true;
  failed_read_ = {team_.roster->rank_of_local(step.peer), error_number, step.bytes};
  return false;
}

int Execution::read_offer_of(int local, const Step& step) {
  const SharedPlace place = read_offer(team_.segment->flag(call_.identity.slot.number, local));
  std::byte* const to = target(step.to, step.to_offset);
  if (place.buffer == 0) {
    return team_.reader->read(local, place.offset + step.from_offset, to, step.bytes);
  }
  const auto parts = team_.buffers == nullptr ? std::span<const std::byte>()
                                              : team_.buffers->parts_of(place.buffer);
  const std::uint64_t offset = place.offset + step.from_offset;
  if (offset > parts.size() || step.bytes > parts.size() - offset) {
    failed_read_ = {team_.roster->rank_of_local(local), 0, step.bytes};
    return 0;
  }
  base::copy_block(to, parts.data() + offset, step.bytes);
  return 0;
}

bool Execution::once() {
  const shm::NodeSegment& segment = *team_.segment;
  const std::uint64_t number = call_.identity.number;
  shm::OnceWord& word = segment.once(call_.identity.slot.number);
  const shm::OnceTurn turn = shm::take_once(word, number, team_.local_rank);
  if (turn != shm::OnceTurn::Mine) return turn == shm::OnceTurn::Done;
  for (const Step& step : call_.schedule->once) copy(step);
  shm::finish_once(segment, word, number);
  return true;
}

/// Counts of those who did not put here themselves, for the day when another algorithm puts there:
/// without them it would stand still until they are told.
void Execution::note_all_headers() {
  for (const std::uint64_t offset : call_.schedule->header_offsets) {
    BlockHeader header;
    std::memcpy(&header, slot_ + offset, sizeof header);
    if (!is_of_call(header, call_.identity.stamp, team_.roster->ranks())) continue;
    context_.done_counts.note_node(team_.node_of(header.owner), header.done);
  }
}

std::uint32_t Execution::pace_words() const {
  std::uint32_t words = 0;
  for (const std::uint64_t offset : call_.schedule->header_offsets) {
    BlockHeader header;
    std::memcpy(&header, slot_ + offset, sizeof header);
    words |= header.pace_word;
  }
  return words;
}

void Execution::finish() {
  if (slot_is_free_ && call_.identity.number % kHeadersEvery == 0) note_all_headers();
  call_.keep_alive.reset();
  call_.buffers = nullptr;
  state_ = State::Idle;
}

}  // namespace allrail::coll
