// What belongs to one connection of a TCP rail: frames that wait to be sent, the reader of what
// comes in, and the counts behind the acknowledgements. Made once per peer, reset per connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "transport/tcp/frame.hpp"

namespace allrail::transport {

/// Chunks in flight per link: enough that small chunks keep a fast link busy for a round trip.
inline constexpr int kTcpQueueDepth = 128;

struct QueuedFrame {
  FrameHeader header;
  const std::byte* payload = nullptr;
  std::size_t sent_bytes = 0;  // of header and payload together
  std::size_t total_bytes() const { return kFrameHeaderBytes + header.bytes; }
};

/// Frames in the order of sending. Payloads of chunks are referred to, those of control messages
/// copied. Holds at most kTcpQueueDepth chunks, kMaxControls messages and an acknowledgement.
class SendQueue {
 public:
  static constexpr std::size_t kMaxControls = 16;

  bool empty() const { return head_ == tail_; }
  std::size_t count() const { return tail_ - head_; }
  bool has_control_room() const { return control_tail_ - control_head_ < kMaxControls; }
  QueuedFrame& at(std::size_t i) { return frames_[(head_ + i) % kFrames]; }

  void push(const FrameHeader& header, const std::byte* payload, std::size_t sent_bytes) {
    QueuedFrame& frame = frames_[tail_++ % kFrames];
    frame = {header, payload, sent_bytes};
    if (header.type == FrameType::Control) {
      auto& copy = controls_[control_tail_++ % kMaxControls];
      if (header.bytes != 0) std::memcpy(copy.data(), payload, header.bytes);
      frame.payload = copy.data();
    }
  }
  void pop() {
    if (at(0).header.type == FrameType::Control) ++control_head_;
    // Always the same few lines where the queue is short.
    if (++head_ == tail_) clear();
  }
  void clear() { head_ = tail_ = control_head_ = control_tail_ = 0; }

 private:
  static constexpr std::size_t kFrames = 256;
  static_assert(kTcpQueueDepth + kMaxControls + 1 <= kFrames);
  std::size_t head_ = 0, tail_ = 0, control_head_ = 0, control_tail_ = 0;
  std::array<QueuedFrame, kFrames> frames_;
  std::array<std::array<std::byte, kMaxControlBytes>, kMaxControls> controls_;
};

struct Stream {
  SendQueue queue;
  FrameReader reader;
  std::uint32_t chunks_posted = 0;     // accepted by post()
  std::uint32_t chunks_sent = 0;       // wholly given to the kernel
  std::uint32_t chunks_completed = 0;  // acknowledged by the peer
  std::uint32_t chunks_received = 0;
  std::uint32_t chunks_told = 0;  // acknowledged to the peer
  std::uint32_t bytes_untold = 0;
  std::int64_t untold_since_ns = 0;  // 0: nobody looked at the clock yet
  bool is_answered = false;          // what goes back acknowledged the last chunks that were
  std::uint32_t last_chunk_bytes = 0;
  bool wants_writable = false;  // epoll watches for room in the socket
  bool unsubmitted = false;     // frames were queued since the socket was last offered some

  int in_flight() const { return static_cast<int>(chunks_posted - chunks_completed); }
  std::uint32_t chunks_untold() const { return chunks_received - chunks_told; }
  void reset() {
    queue.clear();
    reader = FrameReader();
    chunks_posted = chunks_sent = chunks_completed = 0;
    chunks_received = chunks_told = bytes_untold = last_chunk_bytes = 0;
    untold_since_ns = 0;
    is_answered = wants_writable = unsubmitted = false;
  }
};

}  // namespace allrail::transport
