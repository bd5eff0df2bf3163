#include "transport/tcp/frame.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/bytes.hpp"
#include "tests/property/effort.hpp"
#include "transport/tcp/window_table.hpp"

namespace allrail::transport {
namespace {

using Bytes = std::vector<std::byte>;

/// Writes into real windows and notes what happened, in words that can be compared.
struct Recorder : FrameSink {
  WindowTable windows;
  std::vector<std::string> notes;
  std::uint32_t acknowledged_up_to = 0;
  std::uint32_t unwanted_immediate = 0xFFFF'FFFF;
  bool open = true;

  bool is_open() const override { return open; }
  const char* acknowledged(std::uint32_t received) override {
    if (received < acknowledged_up_to || received > 1000) return "acknowledged too much";
    acknowledged_up_to = received;
    return nullptr;
  }
  Target chunk_begins(const FrameHeader& header) override {
    Target target = windows.find(header);
    if (header.immediate == unwanted_immediate) target.to = nullptr;
    return target;
  }
  void chunk_ends(const FrameHeader& header, bool written) override {
    notes.push_back(fmt::format("chunk {} {} {}", header.immediate, header.bytes, written));
  }
  void control(std::span<const std::byte> message) override {
    notes.push_back(fmt::format("control {} {}", message.size(),
                                message.empty() ? 0 : std::to_integer<int>(message.back())));
  }
};

void append(Bytes& stream, const FrameHeader& header, std::span<const std::byte> payload = {}) {
  const auto* raw = reinterpret_cast<const std::byte*>(&header);
  stream.insert(stream.end(), raw, raw + sizeof(header));
  stream.insert(stream.end(), payload.begin(), payload.end());
}

FrameHeader chunk(std::uint32_t bytes, std::uint64_t offset, std::uint32_t immediate = 1) {
  FrameHeader header;
  header.type = FrameType::Chunk;
  header.primary = 1;
  header.bytes = bytes;
  header.offset = offset;
  header.immediate = immediate;
  return header;
}

/// Feeds bytes the way a socket does: the start of payload straight into its place where `direct`.
FrameReader::Result feed(FrameReader& reader, FrameSink& sink, std::span<const std::byte> bytes,
                         bool direct) {
  FrameReader::Result result = FrameReader::Result::Continue;
  const std::span<std::byte> target = reader.payload_target();
  if (direct && !target.empty()) {
    const std::size_t count = std::min(bytes.size(), target.size());
    std::memcpy(target.data(), bytes.data(), count);
    bytes = bytes.subspan(count);
    if (count != 0) result = reader.payload_received(count, sink);
  }
  if (bytes.empty() || result != FrameReader::Result::Continue) return result;
  Bytes buffer(kMaxRestBytes + bytes.size());
  const std::size_t rest = reader.take_rest(buffer.data());
  std::memcpy(buffer.data() + rest, bytes.data(), bytes.size());
  buffer.resize(rest + bytes.size());
  return reader.parse(buffer, sink);
}

struct Conversation {
  Bytes stream, expected_memory;
  std::vector<std::string> expected_notes;
};

constexpr std::size_t kWindowBytes = 4096;

Conversation make_conversation(std::mt19937_64& random, int frames) {
  Conversation result;
  result.expected_memory.resize(kWindowBytes);
  std::uint32_t received = 0;
  for (int i = 0; i < frames; ++i) {
    received += static_cast<std::uint32_t>(random() % 3);
    const std::uint64_t kind = random() % 4;
    if (kind == 0) {
      FrameHeader header;
      header.received = received;
      append(result.stream, header);
      continue;
    }
    Bytes payload(kind == 1 ? random() % (kMaxControlBytes + 1) : random() % 900);
    fill_randomly(payload, random);
    FrameHeader header;
    if (kind == 1) {
      header.type = FrameType::Control;
      header.bytes = static_cast<std::uint32_t>(payload.size());
      result.expected_notes.push_back(
          fmt::format("control {} {}", payload.size(),
                      payload.empty() ? 0 : std::to_integer<int>(payload.back())));
    } else {
      header = chunk(static_cast<std::uint32_t>(payload.size()),
                     random() % (kWindowBytes - payload.size() + 1), kind == 2 ? 7 : 8);
      const bool written = kind == 2;
      if (written) {
        std::copy(payload.begin(), payload.end(),
                  result.expected_memory.begin() + static_cast<std::ptrdiff_t>(header.offset));
      }
      result.expected_notes.push_back(
          fmt::format("chunk {} {} {}", header.immediate, payload.size(), written));
    }
    header.received = received;
    append(result.stream, header, payload);
  }
  return result;
}

TEST(FrameReader, UnderstandsAStreamSplitAtEveryPoint) {
  std::mt19937_64 random(1);
  const Conversation conversation = make_conversation(random, 12);
  const std::span<const std::byte> stream(conversation.stream);
  for (const bool direct : {false, true}) {
    for (std::size_t split = 0; split <= stream.size(); ++split) {
      Bytes memory(kWindowBytes);
      Recorder sink;
      sink.windows.set_primary(memory);
      sink.unwanted_immediate = 8;
      FrameReader reader;
      ASSERT_EQ(feed(reader, sink, stream.first(split), direct), FrameReader::Result::Continue);
      ASSERT_EQ(feed(reader, sink, stream.subspan(split), direct), FrameReader::Result::Continue);
      ASSERT_EQ(sink.notes, conversation.expected_notes) << "split at " << split;
      ASSERT_TRUE(same_bytes(memory, conversation.expected_memory)) << "split at " << split;
    }
  }
}

TEST(FrameReader, UnderstandsRandomStreamsInRandomPieces) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const Conversation conversation = make_conversation(random, 60);
    std::span<const std::byte> stream(conversation.stream);
    const std::size_t longest = 1 + random() % 700;
    Bytes memory(kWindowBytes);
    Recorder sink;
    sink.windows.set_primary(memory);
    sink.unwanted_immediate = 8;
    FrameReader reader;
    while (!stream.empty()) {
      const std::size_t count = std::min<std::size_t>(1 + random() % longest, stream.size());
      ASSERT_EQ(feed(reader, sink, stream.first(count), random() % 2 == 0),
                FrameReader::Result::Continue);
      stream = stream.subspan(count);
    }
    ASSERT_EQ(sink.notes, conversation.expected_notes) << "seed " << seed;
    ASSERT_TRUE(same_bytes(memory, conversation.expected_memory)) << "seed " << seed;
  }
}

TEST(FrameReader, MutatedStreamsNeverWriteOutsideTheWindow) {
  constexpr std::size_t kGuardBytes = 1 << 16;
  constexpr int kStreams = 3000 / property::kOneOf;
  int violations = 0;
  for (std::uint64_t seed = 0; seed < kStreams; ++seed) {
    std::mt19937_64 random(seed);
    Conversation conversation = make_conversation(random, 20);
    Bytes& stream = conversation.stream;
    for (std::uint64_t i = random() % 4 + 1; i != 0; --i) {
      stream[random() % stream.size()] = static_cast<std::byte>(random());
    }
    Bytes memory(kWindowBytes + 2 * kGuardBytes, std::byte{0xA5});
    Recorder sink;
    sink.windows.set_primary({memory.data() + kGuardBytes, kWindowBytes});
    FrameReader reader;
    std::span<const std::byte> rest(stream);
    FrameReader::Result result = FrameReader::Result::Continue;
    while (!rest.empty() && result == FrameReader::Result::Continue) {
      const std::size_t count = std::min<std::size_t>(1 + random() % 500, rest.size());
      result = feed(reader, sink, rest.first(count), random() % 2 == 0);
      rest = rest.subspan(count);
    }
    violations += result == FrameReader::Result::Violation;
    const std::span<const std::byte> all(memory);
    ASSERT_TRUE(all_are(all.first(kGuardBytes), std::byte{0xA5})) << "seed " << seed;
    ASSERT_TRUE(all_are(all.last(kGuardBytes), std::byte{0xA5})) << "seed " << seed;
  }
  EXPECT_GT(violations, kStreams / 30);
}

void expect_violation(const FrameHeader& header, const std::string& text) {
  Bytes memory(kWindowBytes);
  Recorder sink;
  sink.windows.set_primary(memory);
  Bytes stream;
  append(stream, header);
  stream.resize(stream.size() + 64, std::byte{0xFF});
  FrameReader reader;
  ASSERT_EQ(feed(reader, sink, stream, false), FrameReader::Result::Violation) << text;
  EXPECT_EQ(std::string(reader.violation()), text);
  EXPECT_TRUE(sink.notes.empty());
  EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{0}), std::ptrdiff_t{kWindowBytes});
}

TEST(FrameReader, RefusesWhatDoesNotFit) {
  const std::string beyond = "wrote beyond the end of a window";
  expect_violation(chunk(1, kWindowBytes), beyond);
  expect_violation(chunk(64, kWindowBytes - 63), beyond);
  expect_violation(chunk(64, ~std::uint64_t{0}), beyond);
  expect_violation(chunk(64, ~std::uint64_t{0} - 63), beyond);
  expect_violation(chunk(0, kWindowBytes + 1), beyond);
  expect_violation(chunk(kTcpMaxChunkBytes + 1, 0), "sent a chunk that is too long");
  FrameHeader header = chunk(8, 0);
  header.primary = 0;
  expect_violation(header, "wrote into a window that is not registered");
  header.primary = 2;
  expect_violation(header, "sent a malformed frame");
  header = chunk(8, 0);
  header.reserved = 1;
  expect_violation(header, "sent a malformed frame");
  header = chunk(8, 0);
  header.bulk = 2;
  expect_violation(header, "sent a malformed frame");
  header = FrameHeader();
  header.bytes = 1;
  expect_violation(header, "sent a malformed acknowledgement");
  header = FrameHeader();
  header.type = FrameType::Control;
  header.bytes = kMaxControlBytes + 1;
  expect_violation(header, "sent a control message too long");
  header = FrameHeader();
  header.type = static_cast<FrameType>(9);
  expect_violation(header, "sent a frame of an unknown type");
  header = FrameHeader();
  header.received = 5000;
  expect_violation(header, "acknowledged too much");
}

TEST(WindowTable, KnowsOnlyWhatIsRegistered) {
  Bytes memory(100), other(100);
  WindowTable windows;
  const RemoteKey key = windows.add(memory);
  FrameHeader header = chunk(100, 0);
  header.primary = 0;
  header.window = key.address;
  header.key = key.key;
  EXPECT_EQ(windows.find(header).to, memory.data());
  header.key ^= 1;
  EXPECT_NE(windows.find(header).violation, nullptr);
  header.key = key.key;
  header.window = key.address + 1;
  EXPECT_NE(windows.find(header).violation, nullptr);
  header.window = ~std::uint64_t{0};
  EXPECT_NE(windows.find(header).violation, nullptr);

  EXPECT_EQ(windows.remove(key).data(), memory.data());
  EXPECT_TRUE(windows.remove(key).empty());
  header.window = key.address;
  EXPECT_NE(windows.find(header).violation, nullptr);
  header.key = 0;
  EXPECT_NE(windows.find(header).violation, nullptr);
  // The place is used again, and a stale key does not open it.
  const RemoteKey next = windows.add(other);
  EXPECT_EQ(next.address, key.address);
  header.key = key.key;
  EXPECT_NE(windows.find(header).violation, nullptr);
  header.key = next.key;
  EXPECT_EQ(windows.find(header).to, other.data());
}

TEST(FrameReader, StopsWhenTheConnectionIsClosedFromACallback) {
  struct Closer : Recorder {
    void control(std::span<const std::byte> message) override {
      Recorder::control(message);
      open = false;
    }
  } sink;
  Bytes stream;
  FrameHeader header;
  header.type = FrameType::Control;
  append(stream, header);
  append(stream, header);
  FrameReader reader;
  EXPECT_EQ(feed(reader, sink, stream, false), FrameReader::Result::Closed);
  EXPECT_EQ(sink.notes.size(), 1U);
}

}  // namespace
}  // namespace allrail::transport
