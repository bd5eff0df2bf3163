// Frames: what travels on the connection of a TCP rail, and the reader that takes a byte stream
// apart again, whatever the pieces it comes in.
//
// Every frame starts with a FrameHeader. A chunk's payload follows it and is read straight into
// the window where that is possible; a control message follows likewise. Every header carries how
// many chunks its sender has received on this connection: that is the acknowledgement.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "transport/rail.hpp"

namespace allrail::transport {

enum class FrameType : std::uint8_t { Chunk = 1, Control = 2, Acknowledgement = 3 };

/// As on the wire: little-endian, no padding.
struct FrameHeader {
  FrameType type = FrameType::Acknowledgement;
  std::uint8_t primary = 0;   // 1: the receiver's primary window; window and key are 0
  std::uint8_t bulk = 0;      // 1: its sender may wait for the acknowledgement, or measures by it
  std::uint8_t reserved = 0;  // stays 0
  std::uint32_t bytes = 0;    // that follow this header
  std::uint32_t immediate = 0;
  std::uint32_t received = 0;  // chunks that the sender received on this connection, modulo 2^32
  std::uint64_t window = 0;
  std::uint64_t key = 0;
  std::uint64_t offset = 0;
};
inline constexpr std::size_t kFrameHeaderBytes = sizeof(FrameHeader);
static_assert(kFrameHeaderBytes == 40 && std::endian::native == std::endian::little);

/// Largest payload of one chunk on TCP.
inline constexpr std::uint32_t kTcpMaxChunkBytes = 16U << 20;
/// Bytes of an incomplete frame that the reader keeps between calls.
inline constexpr std::size_t kMaxRestBytes = kFrameHeaderBytes + kMaxControlBytes;

/// Says what the reader found. Members that return a reason return nullptr where all is well.
class FrameSink {
 public:
  struct Target {
    const char* violation = nullptr;  // not a chunk that may be written
    std::byte* to = nullptr;          // nullptr: the payload is thrown away
  };
  virtual ~FrameSink() = default;
  virtual const char* acknowledged(std::uint32_t received) = 0;
  /// Where the payload goes. Asked before any of it is read.
  virtual Target chunk_begins(const FrameHeader& header) = 0;
  virtual void chunk_ends(const FrameHeader& header, bool written) = 0;
  virtual void control(std::span<const std::byte> message) = 0;
  /// False once the connection was closed from inside one of the calls above.
  virtual bool is_open() const = 0;
};

class FrameReader {
 public:
  enum class Result { Continue, Closed, Violation };

  /// Moves the start of an incomplete frame to `front` (room for kMaxRestBytes), where the next
  /// bytes must follow it; returns its length.
  std::size_t take_rest(std::byte* front);
  std::size_t rest_bytes() const { return rest_bytes_; }
  /// The rest of the current payload's place in a window; empty if there is no such payload.
  std::span<std::byte> payload_target() const {
    return {to_, to_ == nullptr ? 0 : std::size_t{payload_left_}};
  }
  /// Bytes of the current payload that did not come yet, wherever they go.
  std::uint32_t payload_left() const { return payload_left_; }
  /// Throws the rest of the current payload away: its window is gone.
  void discard_payload() { to_ = nullptr, written_ = false; }
  /// `bytes` of payload_target() were filled.
  Result payload_received(std::size_t bytes, FrameSink& sink);
  /// Takes all of `bytes`, which start with what take_rest() returned.
  Result parse(std::span<const std::byte> bytes, FrameSink& sink);
  /// After Result::Violation: half a sentence.
  const char* violation() const { return violation_; }

 private:
  Result violated(const char* text) {
    violation_ = text;
    return Result::Violation;
  }
  Result begin_frame(const FrameHeader& header, FrameSink& sink);
  Result end_chunk(FrameSink& sink);

  FrameHeader header_;
  std::byte* to_ = nullptr;
  std::uint32_t payload_left_ = 0;
  bool in_chunk_ = false;
  bool written_ = false;
  std::size_t rest_bytes_ = 0;
  std::array<std::byte, kMaxRestBytes> rest_;
  const char* violation_ = "";
};

}  // namespace allrail::transport
