// The frames of a TCP rail. The stream is read twice, at once and in pieces as sockets give them;
// both must see the same, write inside windows only, and keep a bounded rest.
#include <algorithm>
#include <array>
#include <utility>

#include "tests/fuzz/fuzz.hpp"
#include "transport/tcp/frame.hpp"
#include "transport/tcp/window_table.hpp"

namespace allrail::fuzz {
namespace {

using namespace transport;  // NOLINT(google-build-using-namespace): a program of its own
using Result = FrameReader::Result;

constexpr std::size_t kWindowBytes = 3000;
constexpr std::size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xA5};
constexpr std::uint32_t kUnwanted = 13;  // the immediate of chunks that are thrown away

/// What a reader saw, as the bytes that say so.
struct Recorder final : FrameSink {
  WindowTable windows;
  Bytes memory = Bytes(kWindowBytes + 2 * kGuardBytes, kGuard);
  Bytes seen;
  std::uint32_t acknowledged_up_to = 0;
  bool open = true;

  Recorder() { windows.set_primary(std::span(memory).subspan(kGuardBytes, kWindowBytes)); }
  void note(const FrameHeader& header, std::span<const std::byte> payload = {}) {
    const auto raw = std::as_bytes(std::span(&header, 1));
    seen.insert(seen.end(), raw.begin(), raw.end());
    seen.insert(seen.end(), payload.begin(), payload.end());
  }
  bool is_open() const override { return open; }
  const char* acknowledged(std::uint32_t received) override {
    if (received - acknowledged_up_to > 1000) return "acknowledged too much";
    acknowledged_up_to = received;
    return nullptr;
  }
  Target chunk_begins(const FrameHeader& header) override {
    Target target = windows.find(header);
    if (header.immediate == kUnwanted) target.to = nullptr;
    return target;
  }
  void chunk_ends(const FrameHeader& header, bool written) override {
    require(header.bytes <= kWindowBytes && header.offset <= kWindowBytes - header.bytes,
            "a chunk that is reported lies in its window");
    require(written == (header.immediate != kUnwanted), "what is not wanted is not written");
    note(header, written ? std::span(memory).subspan(kGuardBytes + header.offset, header.bytes)
                         : std::span<std::byte>());
    if (header.immediate == 77) open = false;  // as if an event had closed the link
  }
  void control(std::span<const std::byte> message) override {
    require(message.size() <= kMaxControlBytes, "a control message has a bounded length");
    seen.insert(seen.end(), message.begin(), message.end());
  }
  void check_guards() const {
    require(std::all_of(memory.begin(), memory.begin() + kGuardBytes,
                        [](std::byte one) { return one == kGuard; }) &&
                std::all_of(memory.end() - kGuardBytes, memory.end(),
                            [](std::byte one) { return one == kGuard; }),
            "nothing is written outside of windows");
  }
};

/// One piece, the way TcpRail::receive() does it: payload straight into its window, then the rest.
Result feed(FrameReader& reader, Recorder& sink, std::span<const std::byte> bytes) {
  const std::span<std::byte> target = reader.payload_target();
  if (!target.empty()) {
    const std::size_t count = std::min(bytes.size(), target.size());
    std::memcpy(target.data(), bytes.data(), count);
    bytes = bytes.subspan(count);
    const Result result = reader.payload_received(count, sink);
    if (result != Result::Continue || bytes.empty()) return result;
  }
  require(reader.rest_bytes() < kMaxRestBytes, "the start of a frame is bounded");
  // Exactly as long as the bytes, so that reading on is found.
  Bytes buffer(reader.rest_bytes() + bytes.size());
  const std::size_t rest = reader.take_rest(buffer.data());
  std::ranges::copy(bytes, buffer.begin() + static_cast<std::ptrdiff_t>(rest));
  return reader.parse(buffer, sink);
}

Bytes frame(FrameHeader header, std::size_t payload_bytes) {
  header.bytes = static_cast<std::uint32_t>(payload_bytes);
  const auto raw = std::as_bytes(std::span(&header, 1));
  Bytes bytes(raw.begin(), raw.end());
  for (std::size_t i = 0; i < payload_bytes; ++i) bytes.push_back(static_cast<std::byte>(i));
  return bytes;
}

}  // namespace

/// An input is a length of pieces, then the stream.
std::vector<Bytes> seeds() {
  FrameHeader chunk;
  chunk.type = FrameType::Chunk;
  chunk.primary = 1;
  chunk.offset = 100;
  FrameHeader unwanted = chunk;
  unwanted.immediate = kUnwanted;
  FrameHeader control;
  control.type = FrameType::Control;
  FrameHeader acknowledgement;
  acknowledgement.received = 2;
  const std::array<Bytes, 8> frames = {frame(chunk, 90),
                                       frame(control, 52),
                                       frame(unwanted, 30),
                                       frame(acknowledgement, 0),
                                       frame(control, 0),
                                       frame(chunk, 0),
                                       frame(control, kMaxControlBytes),
                                       frame(control, kMaxControlBytes)};
  std::vector<Bytes> all;
  for (std::size_t pieces = 0; pieces < frames.size(); ++pieces) {
    Bytes stream = {static_cast<std::byte>(pieces * 30 + 1)};
    for (std::size_t i = 0; i <= pieces; ++i)
      stream.insert(stream.end(), frames[i].begin(), frames[i].end());
    all.push_back(stream);
  }
  return all;
}

void fuzz_one(std::span<const std::byte> input) {
  if (input.empty()) return;
  const std::size_t piece = 1 + std::to_integer<std::size_t>(input.front());
  input = input.subspan(1);
  FrameReader at_once_reader;
  Recorder at_once;
  const Result expected = input.empty() ? Result::Continue : feed(at_once_reader, at_once, input);
  FrameReader reader;
  Recorder in_pieces;
  Result result = Result::Continue;
  for (auto left = input; !left.empty() && result == Result::Continue;) {
    const auto now = left.first(std::min(piece, left.size()));
    left = left.subspan(now.size());
    result = feed(reader, in_pieces, now);
  }
  require(result == expected, "the end does not depend on the pieces");
  require(in_pieces.seen == at_once.seen, "frames do not depend on the pieces");
  require(in_pieces.memory == at_once.memory, "bytes do not depend on the pieces");
  if (result == Result::Violation) {
    require(std::string_view(reader.violation()) == at_once_reader.violation() &&
                *reader.violation() != '\0',
            "a violation has one reason");
  }
  at_once.check_guards();
}

}  // namespace allrail::fuzz
