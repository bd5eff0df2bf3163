#include "transport/tcp/frame.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace allrail::transport {

std::size_t FrameReader::take_rest(std::byte* front) {
  std::memcpy(front, rest_.data(), rest_bytes_);
  return std::exchange(rest_bytes_, 0);
}

FrameReader::Result FrameReader::payload_received(std::size_t bytes, FrameSink& sink) {
  to_ += bytes;
  payload_left_ -= static_cast<std::uint32_t>(bytes);
  return payload_left_ == 0 ? end_chunk(sink) : Result::Continue;
}

FrameReader::Result FrameReader::parse(std::span<const std::byte> bytes, FrameSink& sink) {
  while (!bytes.empty()) {
    if (in_chunk_) {
      const std::size_t count = std::min(bytes.size(), std::size_t{payload_left_});
      if (to_ != nullptr) {
        std::memcpy(to_, bytes.data(), count);
        to_ += count;
      }
      payload_left_ -= static_cast<std::uint32_t>(count);
      bytes = bytes.subspan(count);
      if (payload_left_ != 0) return Result::Continue;
      const Result result = end_chunk(sink);
      if (result != Result::Continue) return result;
      continue;
    }
    FrameHeader header;
    std::size_t frame_bytes = kFrameHeaderBytes;
    if (bytes.size() >= kFrameHeaderBytes) {
      std::memcpy(&header, bytes.data(), kFrameHeaderBytes);
      if (header.type == FrameType::Control) {
        // Checked here already: the length decides how much is kept.
        if (header.bytes > kMaxControlBytes) return violated("sent a control message too long");
        frame_bytes += header.bytes;
      }
    }
    if (bytes.size() < frame_bytes) {
      std::memcpy(rest_.data(), bytes.data(), bytes.size());
      rest_bytes_ = bytes.size();
      return Result::Continue;
    }
    Result result = begin_frame(header, sink);
    if (result == Result::Continue && header.type == FrameType::Control) {
      sink.control(bytes.subspan(kFrameHeaderBytes, header.bytes));
      if (!sink.is_open()) result = Result::Closed;
    }
    if (result != Result::Continue) return result;
    bytes = bytes.subspan(frame_bytes);
  }
  return Result::Continue;
}

FrameReader::Result FrameReader::begin_frame(const FrameHeader& header, FrameSink& sink) {
  if (header.primary > 1 || header.bulk > 1 || header.reserved != 0) {
    return violated("sent a malformed frame");
  }
  switch (header.type) {
    case FrameType::Chunk:
      if (header.bytes > kTcpMaxChunkBytes) return violated("sent a chunk that is too long");
      break;
    case FrameType::Control:
      break;
    case FrameType::Acknowledgement:
      if (header.bytes != 0) return violated("sent a malformed acknowledgement");
      break;
    default:
      return violated("sent a frame of an unknown type");
  }
  if (const char* reason = sink.acknowledged(header.received)) return violated(reason);
  if (!sink.is_open()) return Result::Closed;
  if (header.type != FrameType::Chunk) return Result::Continue;
  const FrameSink::Target target = sink.chunk_begins(header);
  if (target.violation != nullptr) return violated(target.violation);
  if (!sink.is_open()) return Result::Closed;
  header_ = header;
  in_chunk_ = true;
  to_ = target.to;
  written_ = target.to != nullptr;
  payload_left_ = header.bytes;
  return payload_left_ == 0 ? end_chunk(sink) : Result::Continue;
}

FrameReader::Result FrameReader::end_chunk(FrameSink& sink) {
  in_chunk_ = false;
  to_ = nullptr;
  sink.chunk_ends(header_, written_);
  return sink.is_open() ? Result::Continue : Result::Closed;
}

}  // namespace allrail::transport
