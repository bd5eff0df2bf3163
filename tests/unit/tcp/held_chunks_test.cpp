// Chunks that are held lie in the rail, and leave with whatever hands the rail's frames over.
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/tcp/test_rails.hpp"

namespace allrail::transport {
namespace {

class HeldChunks : public ::testing::Test {
 protected:
  void SetUp() override {
    job_.connect(0, 1);
    ASSERT_TRUE(job_.poll_until([&] { return job_.linked(0, 1); }));
  }

  void post(std::uint32_t bytes, bool held) {
    Chunk chunk = make_chunk(std::span(data_).first(bytes), 0, next_++);
    chunk.held = held;
    ASSERT_TRUE(sender().post(1, chunk));
  }
  void hold(int chunks = 3) {
    const std::int64_t before = sender().undelivered_bytes(1);
    for (int i = 0; i < chunks; ++i) ASSERT_NO_FATAL_FAILURE(post(100, true));
    EXPECT_LE(sender().undelivered_bytes(1), before) << "the kernel has some of them";
    EXPECT_FALSE(sender().flushed());
  }
  /// The sender does nothing any more.
  void receive_all() {
    const auto& arrived = job_[1].events.arrived[0];
    const base::Deadline deadline = base::Deadline::after(std::chrono::seconds(10));
    while (arrived.size() != next_ && !deadline.passed()) receiver().poll(job_[1].events);
    ASSERT_EQ(arrived.size(), next_);
    for (std::uint32_t i = 0; i < next_; ++i) EXPECT_EQ(arrived[i], i) << "they keep their order";
  }

  Rail& sender() { return *job_[0].rail; }
  Rail& receiver() { return *job_[1].rail; }

  TestJob job_{2, std::size_t{64} * 1024};
  std::vector<std::byte> data_ = pattern(std::size_t{64} * 1024, 5);
  std::uint32_t next_ = 0;
};

TEST_F(HeldChunks, LeaveWithTheRest) {
  const std::vector<std::function<void()>> others = {
      [&] { sender().submit(); },
      [&] { sender().poll(job_[0].events); },
      [&] { sender().poll_peer(job_[0].events, 1); },
      [&] {
        post(100, false);
        sender().submit();
      },
      [&] {
        post(20'000, false);
        sender().submit();
      },
  };
  for (const auto& other : others) {
    ASSERT_NO_FATAL_FAILURE(hold());
    other();
    EXPECT_TRUE(sender().flushed());
    ASSERT_NO_FATAL_FAILURE(receive_all());
  }
}

TEST_F(HeldChunks, DoNotStandInTheWayOfAMessage) {
  ASSERT_NO_FATAL_FAILURE(hold());
  ASSERT_TRUE(sender().post_control(1, std::vector<std::byte>(8)));
  sender().submit();
  ASSERT_NO_FATAL_FAILURE(receive_all());
  EXPECT_TRUE(job_.poll_until([&] { return job_[1].events.controls[0].size() == 1; }));
}

TEST_F(HeldChunks, OneFrameIsEnoughForMany) {
  ASSERT_NO_FATAL_FAILURE(hold(sender().queue_depth()));
  Chunk chunk = make_chunk(std::span(data_).first(8), 0, next_);
  chunk.held = true;
  EXPECT_FALSE(sender().post(1, chunk)) << "they count as in flight";
  sender().submit();
  ASSERT_NO_FATAL_FAILURE(receive_all());
}

TEST_F(HeldChunks, AreDroppedWithTheirLink) {
  ASSERT_NO_FATAL_FAILURE(hold());
  sender().close(1, job_[0].events);
  ASSERT_TRUE(job_.poll_until([&] { return job_[1].events.downs[0] == 1; }));
  ASSERT_TRUE(job_.poll_until([&] { return job_.linked(0, 1); }));
  EXPECT_TRUE(sender().flushed());
  EXPECT_TRUE(job_[1].events.arrived[0].empty());
  next_ = 0;
  ASSERT_NO_FATAL_FAILURE(hold());
  sender().submit();
  ASSERT_NO_FATAL_FAILURE(receive_all());
}

}  // namespace
}  // namespace allrail::transport
