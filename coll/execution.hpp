// One schedule being run: the walk over its steps, which stops where it has to wait and goes on
// later. It returns values and allocates nothing once its vectors have grown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "coll/block_header.hpp"
#include "coll/done_counts.hpp"
#include "coll/node_walk.hpp"
#include "coll/ready_token.hpp"
#include "coll/registration.hpp"
#include "coll/schedule/schedule.hpp"
#include "coll/slots.hpp"
#include "coll/team.hpp"

namespace allrail::coll {

/// Puts of fewer bytes come over one rail, the same in every call; longer ones take turns.
inline constexpr std::uint64_t kTurnBytes = 512;

/// Another rank's call does not match mine.
struct CallMismatch {
  int peer = -1;
  BlockHeader theirs;
};

/// A block that a rank of my node offered could not be read.
struct FailedRead {
  int peer = -1;
  int error_number = 0;  // 0: it names a Buffer, or bytes of one, that there are not here
  std::uint64_t bytes = 0;
};

/// What an execution runs, given to start().
struct Call {
  const schedule::Schedule* schedule = nullptr;
  std::shared_ptr<const schedule::Schedule> keep_alive;  // null where the plan holds it
  const std::byte* send = nullptr;                       // of this slice
  std::byte* receive = nullptr;
  const Buffers* buffers = nullptr;  // of all of them, for what is the same; outlives the call
  SliceIdentity identity;
  CallDescription description;
  // That the receive buffer lies in; zero-copy only.
  const transport::RemoteWindow* window = nullptr;
  std::uint64_t window_offset = 0;  // where the receive buffer begins in it
  std::uint64_t slice_offset = 0;   // where this slice begins, on all ranks
  bool has_puts = true;             // false: no step is a Put or an Await
  // The call before was of the same operation and root, and this one answers none of its puts.
  bool continues_stream = false;
  std::uint32_t pace_word = 0;  // of a barrier: what its headers say
  bool zero_copy() const { return window != nullptr; }
};

/// What all executions of a communicator share.
struct ExecutionContext {
  const Team& team;
  DoneCounts& done_counts;
  std::vector<std::uint64_t> local_awaited;  // puts awaited so far, by local rank of the sender
};

class Execution {
 public:
  enum class State { Idle, Running, Finished };

  explicit Execution(ExecutionContext& context);

  /// Calls are started in order.
  void start(Call&& call) {
    call_ = std::move(call);
    start();
  }
  /// The same without a copy: whoever starts a call fills in all of this before. The first
  /// `steps_done` steps have been made; no step of such a call is a Put or an Await.
  Call& next_call() { return call_; }
  void start(std::size_t steps_done = 0);
  /// Walks on as far as possible. `in_turn` is false while an earlier call has puts to post or
  /// awaits to announce: both keep the order of calls. True once all steps are done.
  bool advance(bool in_turn);
  /// After all steps: whether user memory that rails read is free again. If not, peers are told
  /// what arrived from them, once: they wait for the same.
  bool await_sent();
  /// Ends a call whose steps are done, or gives it up after an error.
  void finish();

  State state() const { return state_; }
  std::uint64_t call_number() const { return call_.identity.number; }
  bool holds_the_turn() const { return puts_left_ != 0 || announced_ < await_steps_.size(); }
  const CallMismatch* mismatch() const { return mismatch_.peer < 0 ? nullptr : &mismatch_; }
  const FailedRead* failed_read() const { return failed_read_.peer < 0 ? nullptr : &failed_read_; }
  /// The rank that is waited for now, or -1: for warnings.
  int awaited_rank() const;
  /// The step that waits for a put of another node, if that is the next.
  const schedule::Step* awaited_put() const;
  /// Puts of the same port go over the same rail; of an await, what its sender has for it.
  int port_of(const schedule::Step& step) const;
  /// Whether it waits for ranks of its own node, and whether that wait is over.
  bool awaits_node() const;
  bool node_is_ready() const;
  /// Of a barrier whose steps are done: what the signals that arrived say, put together.
  std::uint32_t pace_words() const;
  const Call& call() const { return call_; }

 private:
  bool slot_free();
  void find_puts();
  void announce_awaits();
  bool run_step(const schedule::Step& step, bool in_turn);
  void copy(const schedule::Step& step);
  void stamp(const schedule::Step& step);
  bool put(const schedule::Step& step);
  void note_header_of(const schedule::Step& put);
  bool put_locally(const schedule::Step& step);
  bool await(const schedule::Step& step);
  bool await_local(const schedule::Step& step);
  bool user_memory_free() const;
  bool slot_is_free_at(int peer);
  bool once();
  void offer(const schedule::Step& step);
  bool read(const schedule::Step& step);
  int read_offer_of(int local, const schedule::Step& step);
  void note_sender(const schedule::Step& step);
  void note_all_headers();
  bool header_matches(const schedule::Step& step);
  const ReadyToken* token_of(int peer);
  std::byte* lines() const;
  const std::byte* source(schedule::Memory memory, std::uint64_t offset) const;
  std::byte* target(schedule::Memory memory, std::uint64_t offset) const;

  ExecutionContext& context_;
  const Team& team_;
  State state_ = State::Idle;
  Call call_;
  std::byte* slot_ = nullptr;
  bool slot_is_free_ = false;
  std::uint64_t stamp_offset_ = 0;  // of my header in this call, once written, and what it says
  std::uint64_t stamped_done_ = 0;
  std::size_t next_step_ = 0;
  std::size_t next_await_ = 0;
  int puts_left_ = 0;
  std::vector<const schedule::Step*> await_steps_;
  std::size_t announced_ = 0;                 // of them: the fabric knows that they come
  std::vector<std::uint64_t> await_numbers_;  // of those that are announced
  struct UserPut {
    int peer;
    std::uint64_t number;
  };
  std::vector<UserPut> user_puts_;  // puts out of user memory
  bool told_what_arrived_ = false;  // before this rank waits for such words itself
  bool acknowledged_ = false;       // before it waits for the slot of a peer
  ReadyToken token_;
  int token_of_ = -1;
  CallMismatch mismatch_;
  FailedRead failed_read_;
};

}  // namespace allrail::coll
