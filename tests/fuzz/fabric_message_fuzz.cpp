// Control messages of the fabric: what decodes re-encodes to the same bytes, within its bounds.
#include "tests/fuzz/fuzz.hpp"
#include "transport/control_message.hpp"

namespace allrail::fuzz {

using transport::ControlMessage;

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (int kind = 1; kind <= static_cast<int>(ControlMessage::Kind::Goodbye); ++kind) {
    ControlMessage message;
    message.kind = static_cast<ControlMessage::Kind>(kind);
    message.rail = static_cast<std::uint8_t>(kind % transport::kMaxRails);
    message.count = static_cast<std::uint16_t>(kind * 9);
    message.number = 3;
    message.mask = 0x5555;
    for (std::uint32_t i = 0; i < message.count; ++i) message.immediates[i] = i << 20 | i;
    transport::ControlBytes bytes;
    const std::size_t length = encode(message, bytes);
    all.emplace_back(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
  }
  return all;
}

void fuzz_one(std::span<const std::byte> input) {
  const auto message = transport::decode(input);
  if (!message) return;
  require(message->rail < transport::kMaxRails, "the rail is one that there can be");
  require(message->count <= transport::kMaxLinkChunks, "it names no more chunks than fly");
  transport::ControlBytes bytes;
  const std::size_t length = encode(*message, bytes);
  require(equal(std::span(bytes).first(length), input), "it re-encodes to the same bytes");
}

}  // namespace allrail::fuzz
