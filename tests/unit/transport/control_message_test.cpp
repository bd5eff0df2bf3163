#include "transport/control_message.hpp"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace allrail::transport {
namespace {

ControlMessage full_fence() {
  ControlMessage message;
  message.kind = ControlMessage::Kind::Fence;
  message.rail = 7;
  message.peer_rail = 5;
  message.count = kMaxLinkChunks;
  message.number = 0x0123456789ABCDEF;
  message.consumed = 1;
  message.done = 2;
  message.seen_consumed = 3;
  message.seen_done = UINT64_MAX;
  for (std::uint32_t i = 0; i < kMaxLinkChunks; ++i) message.immediates[i] = i * 0x01020304U;
  return message;
}

TEST(ControlMessage, ComesBackAsItWas) {
  ControlBytes bytes;
  const ControlMessage sent = full_fence();
  const std::size_t length = encode(sent, bytes);
  const auto got = decode({bytes.data(), length});
  ASSERT_TRUE(got);
  EXPECT_EQ(got->kind, sent.kind);
  EXPECT_EQ(got->rail, sent.rail);
  EXPECT_EQ(got->peer_rail, sent.peer_rail);
  EXPECT_EQ(got->count, sent.count);
  EXPECT_EQ(got->number, sent.number);
  EXPECT_EQ(got->consumed, sent.consumed);
  EXPECT_EQ(got->done, sent.done);
  EXPECT_EQ(got->seen_consumed, sent.seen_consumed);
  EXPECT_EQ(got->seen_done, sent.seen_done);
  EXPECT_EQ(got->immediates, sent.immediates);
}

TEST(ControlMessage, AnswersBringTheirMask) {
  ControlMessage sent;
  sent.kind = ControlMessage::Kind::FenceAnswer;
  sent.count = 64;
  sent.mask = 0x8000'0000'0000'0001;
  ControlBytes bytes;
  const std::size_t length = encode(sent, bytes);
  const auto got = decode({bytes.data(), length});
  ASSERT_TRUE(got);
  EXPECT_EQ(got->mask, sent.mask);
  EXPECT_EQ(got->count, 64);
}

TEST(ControlMessage, EveryOtherLengthIsRefused) {
  ControlBytes bytes{};
  const std::size_t length = encode(full_fence(), bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut)
    EXPECT_EQ(decode({bytes.data(), cut}).has_value(), cut == length) << cut;
}

TEST(ControlMessage, RandomBytesAreHarmless) {
  std::mt19937 engine(1);
  ControlBytes valid{};
  const std::size_t length = encode(full_fence(), valid);
  for (int i = 0; i < 200'000; ++i) {
    // Exactly sized on the heap, so that a read past the end is seen by the sanitizer.
    std::vector<std::byte> bytes(valid.begin(),
                                 valid.begin() + static_cast<std::ptrdiff_t>(length));
    if (i % 2 == 0) bytes.resize(engine() % (kMaxControlBytes + 1));
    for (unsigned flips = 1 + engine() % 4; flips > 0 && !bytes.empty(); --flips)
      bytes[engine() % std::min<std::size_t>(bytes.size(), 8)] = static_cast<std::byte>(engine());
    const auto message = decode(bytes);
    if (!message) continue;
    EXPECT_LT(message->rail, kMaxRails);
    EXPECT_LT(message->peer_rail, kMaxRails);
    EXPECT_LE(message->count, kMaxLinkChunks);
  }
}

}  // namespace
}  // namespace allrail::transport
