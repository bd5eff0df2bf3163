#include "transport/control_message.hpp"

#include <algorithm>
#include <cstring>

namespace allrail::transport {

namespace {

// Changes with the layout, so that two builds that differ do not misread each other.
constexpr std::uint8_t kLayout = 0xA2;
constexpr std::size_t kHeaderBytes = 5 + 6 * sizeof(std::uint64_t);
static_assert(kHeaderBytes + kMaxLinkChunks * sizeof(std::uint32_t) <= kMaxControlBytes);

struct Writer {
  ControlBytes& to;
  std::size_t at = 0;
  void integer(std::uint64_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) to[at++] = static_cast<std::byte>(value >> (8 * i));
  }
};

struct Reader {
  std::span<const std::byte> from;
  std::size_t at = 0;
  std::uint64_t integer(std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i)
      value |= std::to_integer<std::uint64_t>(from[at++]) << (8 * i);
    return value;
  }
};

}  // namespace

std::size_t encode(const ControlMessage& message, ControlBytes& to) {
  Writer writer{to};
  const auto count = std::min<std::size_t>(message.count, kMaxLinkChunks);
  writer.integer(kLayout, 1);
  writer.integer(static_cast<std::uint64_t>(message.kind), 1);
  writer.integer(message.rail, 1);
  writer.integer(message.peer_rail, 1);
  writer.integer(count, 1);
  writer.integer(message.number, 8);
  writer.integer(message.consumed, 8);
  writer.integer(message.done, 8);
  writer.integer(message.seen_consumed, 8);
  writer.integer(message.seen_done, 8);
  writer.integer(message.mask, 8);
  if (message.kind == ControlMessage::Kind::Fence)
    for (std::size_t i = 0; i < count; ++i) writer.integer(message.immediates[i], 4);
  return writer.at;
}

std::optional<ControlMessage> decode(std::span<const std::byte> from) {
  if (from.size() < kHeaderBytes) return std::nullopt;
  Reader reader{from};
  if (reader.integer(1) != kLayout) return std::nullopt;
  ControlMessage message;
  const std::uint64_t kind = reader.integer(1);
  if (kind < static_cast<std::uint64_t>(ControlMessage::Kind::Hello) ||
      kind > static_cast<std::uint64_t>(ControlMessage::Kind::Goodbye))
    return std::nullopt;
  message.kind = static_cast<ControlMessage::Kind>(kind);
  message.rail = static_cast<std::uint8_t>(reader.integer(1));
  message.peer_rail = static_cast<std::uint8_t>(reader.integer(1));
  message.count = static_cast<std::uint16_t>(reader.integer(1));
  if (message.rail >= kMaxRails || message.peer_rail >= kMaxRails || message.count > kMaxLinkChunks)
    return std::nullopt;
  message.number = reader.integer(8);
  message.consumed = reader.integer(8);
  message.done = reader.integer(8);
  message.seen_consumed = reader.integer(8);
  message.seen_done = reader.integer(8);
  message.mask = reader.integer(8);
  const bool fence = message.kind == ControlMessage::Kind::Fence;
  const std::size_t tail = fence ? message.count * sizeof(std::uint32_t) : 0;
  if (from.size() != kHeaderBytes + tail) return std::nullopt;
  if (fence)
    for (std::size_t i = 0; i < message.count; ++i)
      message.immediates[i] = static_cast<std::uint32_t>(reader.integer(4));
  return message;
}

}  // namespace allrail::transport
