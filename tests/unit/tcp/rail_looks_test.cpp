// What a look at a TCP rail takes in, when it answers, and when what was posted leaves.
#include <gtest/gtest.h>

#include "tests/unit/tcp/test_rails.hpp"
#include "transport/tcp/tcp_rail.hpp"

namespace allrail::transport {
namespace {

/// To the start of the window.
Chunk first_chunk(std::span<const std::byte> from, std::uint32_t immediate, bool bulk) {
  Chunk chunk = make_chunk(from, 0, immediate);
  chunk.bulk = bulk;
  return chunk;
}

TEST(TcpRailLooks, AtOnePeerFindWhatItSentAndNothingElse) {
  TestJob job(3, 64);
  job.connect(0, 1);
  job.connect(0, 2);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1) && job.linked(0, 2); }));
  const std::vector<std::byte> data(8);
  for (const int sender : {1, 2}) {
    ASSERT_TRUE(job[sender].rail->post(0, first_chunk(data, 7, false)));
  }
  auto& events = job[0].events;
  const base::Deadline deadline = base::Deadline::after(std::chrono::seconds(10));
  while (events.arrived[2].empty() && !deadline.passed()) {
    job[0].rail->poll_peer(events, 2);
  }
  EXPECT_EQ(events.arrived[2].size(), 1U);
  // It was sent first, so it is here.
  for (int look = 0; look < 100; ++look) job[0].rail->poll_peer(events, 2);
  EXPECT_TRUE(events.arrived[1].empty());
  EXPECT_TRUE(job.poll_until([&] { return events.arrived[1].size() == 1; }));
}

TEST(TcpRailLooks, AtAPeerThatIsGoneReportItsEnd) {
  TestJob job(2, 64);
  job.connect(0, 1);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
  job[1].rail.reset();
  auto& events = job[0].events;
  const base::Deadline deadline = base::Deadline::after(std::chrono::seconds(10));
  while (events.downs[1] == 0 && !deadline.passed()) job[0].rail->poll_peer(events, 1);
  EXPECT_EQ(events.downs[1], 1);
  EXPECT_FALSE(job[0].rail->poll_peer(events, 1));
}

TEST(TcpRailSubmit, LargeChunksLeaveTogetherAndWhatCameBehindThemBehindThem) {
  TestJob job(2, 16 * 1024);
  job.connect(0, 1);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
  Rail& sender = *job[0].rail;
  const std::vector<std::byte> data(8 * 1024);
  EXPECT_TRUE(sender.flushed());
  ASSERT_TRUE(sender.post(1, first_chunk(data, 5, true)));
  ASSERT_TRUE(sender.post(1, first_chunk(data, 6, true)));
  ASSERT_TRUE(sender.post(1, first_chunk(std::span(data).first(8), 7, false)));
  EXPECT_FALSE(sender.flushed());
  auto& events = job[1].events;
  const base::Deadline deadline = base::Deadline::after(std::chrono::milliseconds(50));
  while (!deadline.passed()) job[1].rail->poll(events);
  EXPECT_TRUE(events.arrived[0].empty()) << "a chunk left before the next one was known";
  sender.submit();
  EXPECT_TRUE(sender.flushed());
  const base::Deadline limit = base::Deadline::after(std::chrono::seconds(10));
  while (events.arrived[0].size() < 3 && !limit.passed()) job[1].rail->poll(events);
  EXPECT_EQ(events.arrived[0], (std::vector<std::uint32_t>{5, 6, 7}));
}

class Acknowledgement : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kBytes = 16 * 1024;
  static constexpr std::uint32_t kMostBytes = 64 * 1024;

  void SetUp() override {
    job_.connect(0, 1);
    ASSERT_TRUE(job_.poll_until([&] { return job_.linked(0, 1); }));
  }

  /// Polls the receiver until `count` chunks are there, and not once more.
  void send(std::size_t count, bool bulk, std::uint32_t bytes = kBytes) {
    const auto data = std::span<const std::byte>(data_).first(bytes);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(job_[0].rail->post(1, first_chunk(data, static_cast<std::uint32_t>(i), bulk)));
    }
    auto& events = job_[1].events;
    const base::Deadline deadline = base::Deadline::after(std::chrono::seconds(10));
    while (events.arrived[0].size() < count && !deadline.passed()) {
      job_[0].rail->poll(job_[0].events);
      job_[1].rail->poll(events);
    }
    ASSERT_EQ(events.arrived[0].size(), count);
  }

  /// What the receiver has said, without its saying more.
  std::uint64_t acknowledged() {
    const base::Deadline deadline = base::Deadline::after(std::chrono::milliseconds(50));
    while (!deadline.passed()) job_[0].rail->poll(job_[0].events);
    return job_[0].events.completed[1];
  }

  TestJob job_{2, kMostBytes};
  std::vector<std::byte> data_ = std::vector<std::byte>(kMostBytes);
};

TEST_F(Acknowledgement, OfASmallPutIsLeftToTheNextFrameThatGoesBack) {
  send(1, false);
  EXPECT_EQ(acknowledged(), 0U);
  const std::vector<std::byte> answer(8);
  ASSERT_TRUE(job_[1].rail->post(0, first_chunk(answer, 0, false)));
  EXPECT_EQ(acknowledged(), 1U);
}

TEST_F(Acknowledgement, OfABulkChunkIsSentAtOnce) {
  send(1, true);
  EXPECT_EQ(acknowledged(), 1U);
}

TEST_F(Acknowledgement, OfTheShortestChunkThatMeasuresIsSentAtOnce) {
  send(1, true, kMeasuredChunkBytes);
  EXPECT_EQ(acknowledged(), 1U);
}

TEST_F(Acknowledgement, OfManySmallPutsDoesNotWaitForAFrameThatGoesBack) {
  send(8, false);
  EXPECT_GE(acknowledged(), 3U);
}

/// However the clock of 0.3 ms divides them, no more than three are left.
TEST_F(Acknowledgement, OfSomeLargePutsComesWhileTheirSenderHasSlots) {
  send(12, false, kMostBytes);
  EXPECT_GE(acknowledged(), 9U);
}

/// Likewise no more than 15.
TEST_F(Acknowledgement, OfShortPutsDoesNotWaitUntilTheyFillTheRoomOfTheirSender) {
  send(40, false, 6 * 1024);
  EXPECT_GE(acknowledged(), 25U);
}

}  // namespace
}  // namespace allrail::transport
