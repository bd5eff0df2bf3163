// The send side of one link's queue pair: work requests are collected in a list that one call
// posts, and only some of them are signalled.
//
// Requests complete in the order in which they were posted, so that the completion of one tells of
// all before it. A ring holds them from the moment when they are listed until then; it has a place
// for everything that the link may have in flight (kSendDepth), which its limits per kind keep.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <infiniband/verbs.h>

#include "transport/verbs/work.hpp"

namespace allrail::transport::verbs {

class SendQueue {
 public:
  enum class Kind : std::uint8_t { Chunk, Control, Credit };

  /// A work request. Unless `is_inline`, the device reads `from` until the request is done; if so,
  /// it is read when the list is posted.
  struct Request {
    Kind kind = Kind::Chunk;
    ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
    const void* from = nullptr;
    std::uint32_t bytes = 0;
    std::uint32_t local_key = 0;
    bool is_inline = false;
    std::uint32_t immediate = 0;
    std::uint64_t remote_address = 0;
    std::uint32_t remote_key = 0;
    std::uint16_t control_buffer = 0;
  };

  /// What a completion tells to be done.
  struct Done {
    int chunks = 0;
    int credits = 0;
    std::uint64_t control_buffers = 0;  // one bit each
  };

  SendQueue() = default;
  SendQueue(const SendQueue&) = delete;  // its requests point at each other
  SendQueue& operator=(const SendQueue&) = delete;

  /// Listed or in flight.
  int chunks() const { return chunks_; }
  int credits() const { return credits_; }
  bool has_list() const { return posted_ != end_; }
  /// Posted, and not known to be done.
  bool in_flight() const { return done_ != posted_; }
  /// Requests that are done, since clear(), ...
  std::uint64_t done() const { return done_; }
  /// ... and all that there were.
  std::uint64_t end() const { return end_; }

  /// Adds to the list. `id` is completed by the place in the ring.
  void append(const Request& request, WorkId id);
  /// Posts the list, which is not empty, by one call, and returns 0; or an errno value, and then
  /// has_list() names what the device did not take.
  int post(ibv_qp& pair);
  /// Requests in the list.
  int listed() const { return static_cast<int>(end_ - posted_); }
  /// The request at this place of the ring is done, and all that were posted before it.
  Done complete(std::uint16_t place);
  /// The queue pair is gone, and with it everything that was listed or in flight.
  void clear();

 private:
  struct Entry {
    ibv_send_wr work{};
    ibv_sge piece{};
    Kind kind = Kind::Chunk;
    std::uint16_t control_buffer = 0;
  };

  static std::uint16_t place_of(std::uint64_t number) {
    return static_cast<std::uint16_t>(number % kSendDepth);
  }
  Entry& entry(std::uint64_t number) { return ring_[place_of(number)]; }

  std::array<Entry, kSendDepth> ring_;
  // Numbers of requests: [done_, posted_) are in flight, [posted_, end_) are the list.
  std::uint64_t done_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t end_ = 0;
  int chunks_ = 0;
  int credits_ = 0;
  // Since the last one that is signalled.
  int silent_sends_ = 0;
  std::uint64_t silent_bytes_ = 0;
};

}  // namespace allrail::transport::verbs
