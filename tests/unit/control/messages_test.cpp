#include "transport/control/messages.hpp"

#include <random>

#include <gtest/gtest.h>

namespace allrail::transport::control {
namespace {

std::span<const std::byte> body(const std::vector<std::byte>& message) {
  return std::span(message).subspan(kLengthBytes);
}

std::optional<std::size_t> length_of(const std::vector<std::byte>& message) {
  return decode_length(std::span<const std::byte, kLengthBytes>(message.data(), kLengthBytes));
}

TEST(MessagesTest, a_cause_comes_back) {
  const auto bytes = encode(AbortCause{6, -1, "rank 3 died"});
  EXPECT_EQ(length_of(bytes), bytes.size() - kLengthBytes);
  const auto message = decode(body(bytes));
  ASSERT_TRUE(message && std::holds_alternative<AbortCause>(*message));
  const auto& cause = std::get<AbortCause>(*message);
  EXPECT_EQ(cause.code, 6);
  EXPECT_EQ(cause.peer, -1);
  EXPECT_EQ(cause.text, "rank 3 died");
}

TEST(MessagesTest, a_long_cause_is_cut) {
  const auto message = decode(body(encode(AbortCause{1, 2, std::string(9999, 'x')})));
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(std::get<AbortCause>(*message).text, std::string(kMaxCauseBytes, 'x'));
}

TEST(MessagesTest, heartbeats_come_back) {
  Heartbeat heartbeat;
  for (int rank = 0; rank < 40; ++rank) heartbeat.waits.push_back({rank, 1ULL << 40, ~0ULL - rank});
  heartbeat.late = {7, 1ULL << 41, 1999};
  const auto bytes = encode(heartbeat);
  ASSERT_TRUE(length_of(bytes).has_value());
  const auto message = decode(body(bytes));
  ASSERT_TRUE(message.has_value());
  heartbeat.waits.resize(kMaxWaits);
  EXPECT_EQ(std::get<Heartbeat>(*message).waits, heartbeat.waits);
  EXPECT_EQ(std::get<Heartbeat>(*message).late, heartbeat.late);
}

TEST(MessagesTest, goodbyes_come_back_and_unknown_types_are_known_as_such) {
  EXPECT_TRUE(std::holds_alternative<Goodbye>(*decode(body(encode(Goodbye{})))));
  const std::byte newer[] = {std::byte{200}, std::byte{1}};
  EXPECT_TRUE(std::holds_alternative<Unknown>(*decode(newer)));
}

TEST(MessagesTest, wrong_lengths_are_refused) {
  for (const auto& bytes : {encode(AbortCause{1, 2, ""}), encode(Heartbeat{{{1, 2, 3}}})}) {
    for (std::size_t cut = 0; cut + kLengthBytes < bytes.size(); ++cut) {
      EXPECT_FALSE(decode(body(bytes).first(cut)).has_value()) << cut;
    }
  }
  std::vector<std::byte> goodbye = encode(Goodbye{});
  goodbye.push_back(std::byte{0});
  EXPECT_FALSE(decode(body(goodbye)).has_value());
  std::vector<std::byte> heartbeat = encode(Heartbeat{{{1, 2, 3}}});
  heartbeat[kLengthBytes + 1] = std::byte{2};  // announces one wait more than there is
  EXPECT_FALSE(decode(body(heartbeat)).has_value());
}

TEST(MessagesTest, lengths_have_a_limit) {
  const auto length = [](std::uint32_t value) {
    std::vector<std::byte> bytes(kLengthBytes);
    for (std::size_t at = 0; at < kLengthBytes; ++at)
      bytes[at] = static_cast<std::byte>(value >> (8 * at));
    return length_of(bytes);
  };
  EXPECT_FALSE(length(0).has_value());
  EXPECT_TRUE(length(kMaxMessageBytes).has_value());
  EXPECT_FALSE(length(kMaxMessageBytes + 1).has_value());
  EXPECT_FALSE(length(0xffffffff).has_value());
}

TEST(MessagesTest, any_bytes_are_survived) {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> bytes(random() % 64);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    if (!bytes.empty()) bytes[0] = static_cast<std::byte>(random() % 5);
    const auto message = decode(bytes);
    if (message && std::holds_alternative<Heartbeat>(*message)) {
      EXPECT_EQ(encode(std::get<Heartbeat>(*message)).size(), bytes.size() + kLengthBytes);
    }
  }
}

}  // namespace
}  // namespace allrail::transport::control
