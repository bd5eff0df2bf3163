// The part of the contract that is about links: how they come up, go down and come back, and what
// may not be lost or land meanwhile.
#include <algorithm>
#include <chrono>
#include <limits>

#include "tests/conformance/rail_conformance.hpp"

namespace allrail::transport {

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

TEST_P(RailConformance, LinksComeUpAtBothEnds) {
  EXPECT_FALSE(sender().is_up(1));
  connect();
  EXPECT_TRUE(sender().is_up(1));
  EXPECT_TRUE(receiver().is_up(0));
  EXPECT_EQ(at_sender_.peer, 1);
  EXPECT_EQ(at_receiver_.peer, 0);
  EXPECT_EQ(at_sender_.rail, sender().index());
  EXPECT_EQ(at_sender_.rail_of_peer, receiver().index());
  EXPECT_EQ(at_receiver_.rail_of_peer, sender().index());
  // Again is the same.
  sender().connect(1, receiver().address());
  idle();
  EXPECT_EQ(at_sender_.ups, 1);
  EXPECT_EQ(at_sender_.downs, 0);
}

TEST_P(RailConformance, NothingIsTakenWithoutALink) {
  EXPECT_FALSE(post(0, 8, 1));
  const std::byte message[4] = {};
  EXPECT_FALSE(sender().post_control(1, message));
}

TEST_P(RailConformance, AStaleKeyTakesTheLinkDownAndWritesNothing) {
  connect();
  std::vector<std::byte> memory(1000);
  const RemoteKey key = receiver().register_window(memory);
  receiver().unregister_window(key);
  std::vector<std::byte> other(1000);
  const RemoteKey other_key = receiver().register_window(other);
  Chunk chunk;
  chunk.from = source_.data();
  chunk.bytes = 10;
  chunk.primary = false;
  chunk.window = key;
  ASSERT_TRUE(sender().post(1, chunk));
  ASSERT_TRUE(until([&] { return at_sender_.downs > 0 && at_receiver_.downs > 0; }));
  EXPECT_TRUE(at_receiver_.arrivals.empty());
  EXPECT_TRUE(all_zero(memory));
  EXPECT_TRUE(all_zero(other));
  EXPECT_FALSE(at_receiver_.reason.empty());
  receiver().unregister_window(other_key);
}

TEST_P(RailConformance, AWriteOutOfBoundsTakesTheLinkDownAndWritesNothing) {
  connect();
  Chunk chunk;
  chunk.from = source_.data();
  chunk.bytes = 100;
  for (const std::uint64_t offset :
       {std::uint64_t{kWindowBytes - 99}, std::uint64_t{kWindowBytes + 1},
        std::numeric_limits<std::uint64_t>::max() - 50}) {
    const int ups = at_sender_.ups;
    const int downs = at_receiver_.downs;
    chunk.offset = offset;
    ASSERT_TRUE(sender().post(1, chunk));
    ASSERT_TRUE(until([&] { return at_receiver_.downs > downs; })) << offset;
    EXPECT_TRUE(at_receiver_.arrivals.empty());
    EXPECT_TRUE(all_zero(window_));
    ASSERT_TRUE(until([&] { return at_sender_.ups > ups && receiver().is_up(0); }))
        << "the link did not come back";
  }
}

TEST_P(RailConformance, AfterCloseNothingLandsAndNothingIsReported) {
  connect();
  const int posts = std::min(sender().queue_depth(), 16);
  for (int i = 0; i < posts; ++i)
    post(static_cast<std::size_t>(i) * 100'000, 100'000, static_cast<std::uint32_t>(i));
  for (int i = 0; i < 3; ++i) {
    sender().poll(at_sender_);
    group_->step();
    receiver().poll(at_receiver_);
  }
  receiver().close(0, at_receiver_);
  EXPECT_FALSE(receiver().is_up(0));
  const std::vector<std::byte> then = window_;
  const std::size_t arrivals = at_receiver_.arrivals.size();
  const int downs = at_receiver_.downs;
  ASSERT_TRUE(until([&] { return at_sender_.downs > 0; })) << "the sender did not notice";
  idle();
  EXPECT_TRUE(same_bytes(window_, then));
  EXPECT_EQ(at_receiver_.arrivals.size(), arrivals);
  EXPECT_EQ(at_receiver_.downs, downs) << "close() was reported as a failure";
}

TEST_P(RailConformance, WhatCompletedIsReportedByTheClosingEnd) {
  connect();
  constexpr int kPosts = 8;
  for (int i = 0; i < kPosts; ++i) ASSERT_TRUE(post(0, 100, static_cast<std::uint32_t>(i)));
  // The receiver does not look. Whether its rail completes chunks all the same is its own affair.
  const auto end = Clock::now() + std::chrono::milliseconds(200);
  while (at_sender_.completed < kPosts && Clock::now() < end) {
    sender().poll(at_sender_);
    group_->step();
  }
  receiver().close(0, at_receiver_);
  EXPECT_GE(at_receiver_.arrivals.size(), static_cast<std::size_t>(at_sender_.completed))
      << "a chunk that its sender need not send again was forgotten";
}

TEST_P(RailConformance, LinksComeBackAfterClose) {
  connect();
  for (int round = 1; round <= 2; ++round) {
    Rail& closing = round == 1 ? sender() : receiver();
    closing.close(round == 1 ? 1 : 0, round == 1 ? at_sender_ : at_receiver_);
    ASSERT_TRUE(
        until([&] { return at_sender_.ups == round + 1 && at_receiver_.ups == round + 1; }));
    ASSERT_TRUE(post(0, 500, static_cast<std::uint32_t>(round)));
    ASSERT_TRUE(
        until([&] { return at_receiver_.arrivals.size() == static_cast<std::size_t>(round); }));
  }
  EXPECT_TRUE(begins_like_source(window_, 500));
}

TEST_P(RailConformance, AForgottenPeerIsNotConnectedAgain) {
  connect();
  sender().forget(1);
  receiver().forget(0);
  sender().close(1, at_sender_);
  receiver().close(0, at_receiver_);
  idle();
  EXPECT_FALSE(sender().is_up(1));
  EXPECT_EQ(at_sender_.ups, 1);
}

TEST_P(RailConformance, WhatLiesInARailGoesWithItsLink) {
  connect();
  idle();
  for (std::uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(post(i * 100, 100, i));
  const bool lies_there = !sender().flushed();
  sender().close(1, at_sender_);
  EXPECT_TRUE(sender().flushed());
  sender().submit();
  idle(false);
  if (lies_there) {
    EXPECT_TRUE(at_receiver_.arrivals.empty());
    EXPECT_TRUE(all_zero(window_));
  }
  ASSERT_TRUE(until([&] { return at_sender_.ups == 2 && at_receiver_.ups == 2; }));
  const std::size_t before = at_receiver_.arrivals.size();
  ASSERT_TRUE(post(1000, 500, 7));
  ASSERT_TRUE(until([&] { return at_receiver_.arrivals.size() > before; }));
  EXPECT_EQ(at_receiver_.arrivals.back().immediate, 7U);
}

}  // namespace allrail::transport
