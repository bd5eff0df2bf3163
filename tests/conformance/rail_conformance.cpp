#include "tests/conformance/rail_conformance.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

#include <poll.h>

namespace allrail::transport {

namespace {

using Clock = std::chrono::steady_clock;

/// Tests run side by side: who only waits leaves the processor to the others.
void wait_a_little() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

constexpr int kLooksBeforeWaiting = 1000;

}  // namespace

void RailRecord::link_up(int rail_index, int peer_rank, int peer_rail) {
  ++ups;
  rail_of_peer = peer_rail;
  rail = rail_index;
  peer = peer_rank;
}

void RailRecord::link_down(int, int, std::string_view text) {
  ++downs;
  reason = text;
}

void RailRecord::chunk_arrived(int, int, std::uint32_t immediate, std::uint32_t bytes) {
  arrivals.push_back({immediate, bytes, {watched.begin(), watched.end()}});
}

void RailRecord::control_arrived(int, int, std::span<const std::byte> message) {
  messages.emplace_back(message.begin(), message.end());
}

const std::vector<std::byte>& RailConformance::whole_pattern() {
  static const std::vector<std::byte> all = [] {
    std::vector<std::byte> made(kWindowBytes);
    for (std::size_t at = 0; at < made.size(); ++at) made[at] = pattern(at);
    return made;
  }();
  return all;
}

void RailConformance::SetUp() {
  group_ = GetParam().make();
  sender().set_primary_window(other_window_);
  receiver().set_primary_window(window_);
  sender().register_source(source_);
  receiver().register_source(source_);
}

bool RailConformance::until(const std::function<bool()>& done) {
  const auto end = Clock::now() + std::chrono::seconds(10);
  for (int looks = 0; !done(); ++looks) {
    if (Clock::now() > end) return false;
    const bool any = static_cast<int>(sender().poll(at_sender_)) +
                         static_cast<int>(receiver().poll(at_receiver_)) >
                     0;
    if (any) looks = 0;
    if (!any) group_->step();
    if (looks > kLooksBeforeWaiting) wait_a_little();
  }
  return true;
}

void RailConformance::idle(bool poll_sender, bool poll_receiver) {
  const auto end = Clock::now() + std::chrono::milliseconds(50);
  while (Clock::now() < end) {
    if (poll_sender) sender().poll(at_sender_);
    if (poll_receiver) receiver().poll(at_receiver_);
    group_->step();
    wait_a_little();
  }
}

void RailConformance::connect() {
  sender().connect(1, receiver().address());
  receiver().connect(0, sender().address());
  ASSERT_TRUE(until([&] { return at_sender_.ups > 0 && at_receiver_.ups > 0; }));
}

bool RailConformance::post(std::size_t at, std::uint32_t bytes, std::uint32_t immediate,
                           bool held) {
  Chunk chunk;
  chunk.held = held;
  chunk.from = source_.data() + at;
  chunk.bytes = bytes;
  chunk.offset = at;
  chunk.immediate = immediate;
  return sender().post(1, chunk);
}

TEST_P(RailConformance, SaysWhatItIs) {
  EXPECT_FALSE(sender().name().empty());
  EXPECT_GE(sender().queue_depth(), 1);
  EXPECT_GE(sender().max_chunk_bytes(), 4096U);
  EXPECT_LE(sender().address().size(), 256U);
}

TEST_P(RailConformance, ALookAtOnePeerFindsWhatItSent) {
  connect();
  ASSERT_TRUE(post(0, 100, 5));
  sender().submit();
  const auto end = Clock::now() + std::chrono::seconds(10);
  while (at_receiver_.arrivals.empty() && Clock::now() < end) {
    if (!receiver().poll_peer(at_receiver_, 0)) group_->step();
    sender().poll(at_sender_);
  }
  ASSERT_EQ(at_receiver_.arrivals.size(), 1U);
  EXPECT_EQ(at_receiver_.arrivals[0].immediate, 5U);
  // What is not connected has sent nothing.
  EXPECT_FALSE(receiver().poll_peer(at_receiver_, 1));
}

TEST_P(RailConformance, BytesAreExactAtEverySizeAndOffset) {
  connect();
  std::uint32_t longest = std::min<std::uint32_t>(sender().max_chunk_bytes(), 1U << 20);
  std::size_t at = 3;
  std::uint32_t immediate = 7;
  std::vector<std::byte> expected(window_.size());
  for (const std::uint32_t bytes : {1U, 2U, 63U, 4096U, 65'537U, longest}) {
    const std::size_t before = at_receiver_.arrivals.size();
    at_receiver_.watched = std::span(window_).subspan(at, bytes);
    ASSERT_TRUE(post(at, bytes, ++immediate));
    ASSERT_TRUE(until([&] { return at_receiver_.arrivals.size() > before; })) << bytes;
    const auto& arrival = at_receiver_.arrivals.back();
    EXPECT_EQ(arrival.immediate, immediate);
    EXPECT_EQ(arrival.bytes, bytes);
    std::memcpy(expected.data() + at, source_.data() + at, bytes);
    EXPECT_TRUE(same_bytes(arrival.seen, std::span(source_).subspan(at, bytes)))
        << "the arrival was reported before its bytes could be read";
    at += bytes + 5;
  }
  receiver().flush_acknowledgements();
  EXPECT_TRUE(until([&] { return at_sender_.completed == 6; }));
  EXPECT_TRUE(same_bytes(window_, expected));
  EXPECT_EQ(at_receiver_.arrivals.size(), 6U);
}

TEST_P(RailConformance, AllImmediateBitsArrive) {
  connect();
  ASSERT_TRUE(post(0, 1, 0));
  ASSERT_TRUE(post(1, 1, std::numeric_limits<std::uint32_t>::max()));
  ASSERT_TRUE(until([&] { return at_receiver_.arrivals.size() == 2; }));
  EXPECT_EQ(at_receiver_.arrivals[0].immediate, 0U);
  EXPECT_EQ(at_receiver_.arrivals[1].immediate, std::numeric_limits<std::uint32_t>::max());
}

TEST_P(RailConformance, TheWholeQueueIsTakenAndCompletedOnce) {
  connect();
  const int depth = sender().queue_depth();
  for (int i = 0; i < depth; ++i)
    ASSERT_TRUE(post(static_cast<std::size_t>(i) * 100, 100, static_cast<std::uint32_t>(i))) << i;
  ASSERT_TRUE(
      until([&] { return at_receiver_.arrivals.size() == static_cast<std::size_t>(depth); }));
  receiver().flush_acknowledgements();
  ASSERT_TRUE(until([&] { return at_sender_.completed == depth; }));
  idle();
  EXPECT_EQ(at_sender_.completed, depth);
  for (int i = 0; i < depth; ++i)
    EXPECT_EQ(at_receiver_.arrivals[static_cast<std::size_t>(i)].immediate,
              static_cast<std::uint32_t>(i));
}

TEST_P(RailConformance, HeldChunksArriveThoughTheirSenderIsAway) {
  connect();
  constexpr std::uint32_t kChunks = 16;
  constexpr std::uint32_t kBytes = 700;
  for (std::uint32_t i = 0; i < kChunks; ++i) {
    ASSERT_TRUE(post(std::size_t{i} * kBytes, kBytes, i, /*held=*/true)) << i;
  }
  sender().submit();
  const auto end = Clock::now() + std::chrono::seconds(10);
  while (at_receiver_.arrivals.size() < kChunks && Clock::now() < end) {
    if (!receiver().poll(at_receiver_)) group_->step();
  }
  ASSERT_EQ(at_receiver_.arrivals.size(), kChunks);
  const std::size_t all_bytes = std::size_t{kChunks} * kBytes;
  EXPECT_TRUE(same_bytes(std::span(window_).first(all_bytes), std::span(source_).first(all_bytes)));
  receiver().flush_acknowledgements();
  EXPECT_TRUE(until([&] { return at_sender_.completed == static_cast<int>(kChunks); }));
}

TEST_P(RailConformance, NothingCompletesBeforeItIsDelivered) {
  connect();
  ASSERT_TRUE(post(0, 1000, 1));
  ASSERT_TRUE(until([&] {
    EXPECT_FALSE(at_sender_.completed > 0 && window_[999] != pattern(999));
    receiver().flush_acknowledgements();
    return at_sender_.completed > 0;
  }));
}

TEST_P(RailConformance, WindowsAreToldApartByTheirKeys) {
  connect();
  std::vector<std::byte> first(1000), second(1000);
  const RemoteKey first_key = receiver().register_window(first);
  const RemoteKey second_key = receiver().register_window(second);
  EXPECT_NE(first_key, second_key);
  Chunk chunk;
  chunk.from = source_.data();
  chunk.bytes = 10;
  chunk.primary = false;
  chunk.window = second_key;
  chunk.offset = 990;
  ASSERT_TRUE(sender().post(1, chunk));
  ASSERT_TRUE(until([&] { return at_receiver_.arrivals.size() == 1; }));
  EXPECT_TRUE(std::equal(second.begin() + 990, second.end(), source_.begin()));
  EXPECT_TRUE(all_zero(first));
  EXPECT_TRUE(all_zero(window_));
  receiver().unregister_window(first_key);
  receiver().unregister_window(second_key);
}

// As where a plan receives into what another call sends from, and where two send from the same.
TEST_P(RailConformance, ASourceEndsAloneWhateverElseItsMemoryIs) {
  connect();
  std::vector<std::byte> memory(1000);
  const RemoteKey key = receiver().register_window(memory);
  receiver().register_source(memory);
  receiver().unregister_source(memory);
  sender().register_source(source_);  // as it was
  sender().unregister_source(source_);
  Chunk chunk;
  chunk.from = source_.data() + 7;
  chunk.bytes = 900;
  chunk.primary = false;
  chunk.window = key;
  ASSERT_TRUE(sender().post(1, chunk));
  ASSERT_TRUE(until([&] { return at_receiver_.arrivals.size() == 1; }));
  EXPECT_TRUE(std::equal(memory.begin(), memory.begin() + 900, source_.begin() + 7));
  EXPECT_EQ(at_sender_.downs, 0);
  receiver().unregister_window(key);
}

TEST_P(RailConformance, ControlMessagesTravelBothWays) {
  connect();
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{60}, kMaxControlBytes}) {
    const std::vector<std::byte> message(bytes, static_cast<std::byte>(bytes));
    ASSERT_TRUE(sender().post_control(1, message));
    ASSERT_TRUE(receiver().post_control(0, message));
    const std::size_t count = at_sender_.messages.size() + 1;
    ASSERT_TRUE(until([&] {
      return at_sender_.messages.size() == count && at_receiver_.messages.size() == count;
    }));
    EXPECT_EQ(at_sender_.messages.back(), message);
    EXPECT_EQ(at_receiver_.messages.back(), message);
  }
}

TEST_P(RailConformance, ChunksTravelBothWaysAtOnce) {
  connect();
  Chunk back;
  back.from = source_.data();
  back.bytes = 4096;
  constexpr int kChunks = 200;
  int sent = 0, returned = 0;
  ASSERT_TRUE(until([&] {
    if (sent < kChunks && sent - at_sender_.completed < sender().queue_depth() &&
        post(static_cast<std::size_t>(sent) * 4096, 4096, static_cast<std::uint32_t>(sent)))
      ++sent;
    back.offset = static_cast<std::size_t>(returned) * 4096;
    back.from = source_.data() + back.offset;
    if (returned < kChunks && returned - at_receiver_.completed < receiver().queue_depth() &&
        receiver().post(0, back))
      ++returned;
    receiver().flush_acknowledgements();
    sender().flush_acknowledgements();
    return at_sender_.completed == kChunks && at_receiver_.completed == kChunks;
  }));
  EXPECT_TRUE(begins_like_source(window_, std::size_t{kChunks} * 4096));
  EXPECT_TRUE(begins_like_source(other_window_, std::size_t{kChunks} * 4096));
}

TEST_P(RailConformance, WhatIsFlushedArrivesWithoutTheSender) {
  connect();
  ASSERT_TRUE(post(0, 20'000, 5));
  ASSERT_TRUE(until([&] { return sender().flushed(); }));
  const auto end = Clock::now() + std::chrono::seconds(5);
  while (at_receiver_.arrivals.empty() && Clock::now() < end) {
    receiver().poll(at_receiver_);
    group_->step();
  }
  ASSERT_EQ(at_receiver_.arrivals.size(), 1U);
  EXPECT_TRUE(begins_like_source(window_, 20'000));
}

TEST_P(RailConformance, WhatHasArrivedIsNeitherUnsentNorUndelivered) {
  EXPECT_LE(sender().unsent_bytes(1), 0) << "there is no link";
  EXPECT_LE(sender().undelivered_bytes(1), 0);
  connect();
  ASSERT_TRUE(post(0, 20'000, 5));
  sender().submit();
  ASSERT_TRUE(until([&] { return !at_receiver_.arrivals.empty(); }));
  EXPECT_TRUE(until([&] { return sender().unsent_bytes(1) <= 0; })) << "or it is not known";
  EXPECT_TRUE(until([&] { return sender().undelivered_bytes(1) <= 0; }));
}

TEST_P(RailConformance, WhatIsSubmittedArrivesWithoutTheSender) {
  connect();
  idle();
  const std::vector<std::byte> message(100, std::byte{9});
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(post(static_cast<std::size_t>(i) * 100, 100, static_cast<std::uint32_t>(i)));
  ASSERT_TRUE(sender().post_control(1, message));
  sender().submit();
  EXPECT_TRUE(sender().flushed()) << "so little fits into any device";
  const auto end = Clock::now() + std::chrono::seconds(5);
  while ((at_receiver_.arrivals.size() < 4 || at_receiver_.messages.empty()) &&
         Clock::now() < end) {
    receiver().poll(at_receiver_);
    group_->step();
  }
  ASSERT_EQ(at_receiver_.arrivals.size(), 4U);
  ASSERT_EQ(at_receiver_.messages.size(), 1U);
  EXPECT_EQ(at_receiver_.messages[0], message);
  EXPECT_TRUE(begins_like_source(window_, 400));
}

TEST_P(RailConformance, ItsDescriptorWakesASleeper) {
  if (receiver().event_descriptor() < 0) GTEST_SKIP() << "this rail cannot be slept on";
  connect();
  idle();
  receiver().flush_acknowledgements();
  receiver().prepare_sleep();
  ASSERT_TRUE(post(0, 100, 1));
  const auto end = Clock::now() + std::chrono::seconds(5);
  int ready = 0;
  while (ready == 0 && Clock::now() < end) {
    sender().poll(at_sender_);
    pollfd waiting{receiver().event_descriptor(), POLLIN, 0};
    ready = poll(&waiting, 1, 10);
  }
  ASSERT_EQ(ready, 1);
  EXPECT_TRUE(until([&] { return at_receiver_.arrivals.size() == 1; }));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RailConformance);

}  // namespace allrail::transport
