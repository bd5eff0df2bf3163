// What travels over links that are up: chunks, windows, limits, and who is woken for it.
#include <algorithm>
#include <functional>
#include <numeric>

#include <gtest/gtest.h>
#include <poll.h>

#include "tests/bytes.hpp"
#include "tests/unit/tcp/test_rails.hpp"
#include "transport/tcp/tcp_rail.hpp"

namespace allrail::transport {
namespace {

TEST(TcpRail, SaysWhatItIs) {
  TestJob job(2, 64);
  EXPECT_EQ(job[0].rail->index(), 3);
  EXPECT_EQ(job[0].rail->name(), "127.0.0.2");
  EXPECT_LE(job[0].rail->address().size(), 256U);
  EXPECT_GE(job[0].rail->event_descriptor(), 0);
  EXPECT_FALSE(job[0].rail->is_up(1));
  EXPECT_FALSE(job[0].rail->post(1, Chunk()));
  EXPECT_FALSE(job[0].rail->post_control(1, {}));
}

TEST(TcpRail, MovesBigTransfersBothWays) {
  constexpr std::size_t kBytes = 64U << 20;
  TestJob job(2, kBytes);
  job.connect(0, 1);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
  for (const std::size_t chunk_bytes : {std::size_t{1} << 20, std::size_t{40'000}}) {
    const auto up = pattern(kBytes, chunk_bytes);
    const auto down = pattern(kBytes / 2, chunk_bytes + 1);
    ASSERT_TRUE(transfer(job, 0, 1, up, chunk_bytes));
    ASSERT_TRUE(transfer(job, 1, 0, down, chunk_bytes));
    EXPECT_TRUE(same_bytes(job[1].memory, up));
    EXPECT_TRUE(same_bytes(std::span(job[0].memory).first(down.size()), down));
  }
  EXPECT_EQ(job[0].events.downs[1], 0);
}

TEST(TcpRail, ReportsManySmallChunksOnceAndInOrder) {
  constexpr std::uint32_t kCount = 20'000;
  TestJob job(2, kCount * 8);
  job.connect(0, 1);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
  const auto data = pattern(kCount * 8, 3);
  ASSERT_TRUE(transfer(job, 0, 1, data, 8));
  std::vector<std::uint32_t> expected(kCount);
  std::iota(expected.begin(), expected.end(), 0U);
  EXPECT_EQ(job[1].events.arrived[0], expected);
  EXPECT_TRUE(same_bytes(job[1].memory, data));
}

TEST(TcpRail, KeepsMoreThanTheSocketTakesInTheQueue) {
  constexpr std::size_t kChunkBytes = 1U << 20;
  TestJob job(2, 64 * kChunkBytes);
  job.connect(0, 1);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
  const auto data = pattern(64 * kChunkBytes, 4);
  for (std::size_t i = 0; i < 64; ++i) {
    const auto piece = std::span(data).subspan(i * kChunkBytes, kChunkBytes);
    ASSERT_TRUE(
        job[0].rail->post(1, make_chunk(piece, i * kChunkBytes, static_cast<std::uint32_t>(i))));
  }
  EXPECT_FALSE(job[0].rail->flushed());
  const std::string text = "control messages pass through the same queue";
  ASSERT_TRUE(job[0].rail->post_control(1, std::as_bytes(std::span(text))));
  ASSERT_TRUE(job.poll_until([&] { return job[0].events.completed[1] == 64; }));
  EXPECT_TRUE(job[0].rail->flushed());
  EXPECT_EQ(job[1].events.controls[0], std::vector<std::string>{text});
  EXPECT_TRUE(same_bytes(job[1].memory, data));
}

TEST(TcpRail, KnowsWhatThePeerHasNotRead) {
  TestJob job(2, 1 << 20);
  EXPECT_EQ(job[0].rail->undelivered_bytes(1), -1);
  job.connect(0, 1);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
  const auto data = pattern(1 << 20, 5);
  std::uint64_t posted = 0;
  while (job[0].rail->flushed() && job[0].rail->post(1, make_chunk(data, 0, 0))) {
    ++posted;
    job[0].rail->submit();
  }
  ASSERT_FALSE(job[0].rail->flushed()) << "the peer's kernel takes everything unread";
  EXPECT_GT(job[0].rail->undelivered_bytes(1), 0);
  ASSERT_TRUE(job.poll_until([&] { return job[0].events.completed[1] == posted; }));
  EXPECT_TRUE(job.poll_until([&] { return job[0].rail->undelivered_bytes(1) == 0; }));
}

TEST(TcpRail, LimitsChunksAndControlMessagesInFlight) {
  TestJob job(2, 1 << 20);
  job.connect(0, 1);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
  const auto data = pattern(1 << 20, 5);
  int posted = 0;
  while (posted < 1000 && job[0].rail->post(1, make_chunk(data, 0, 0))) ++posted;
  EXPECT_EQ(posted, job[0].rail->queue_depth());
  int controls = 0;
  while (controls < 1000 && job[0].rail->post_control(1, std::span(data).first(512))) ++controls;
  EXPECT_GT(controls, 0);
  EXPECT_LT(controls, 1000);
  EXPECT_FALSE(job[0].rail->post_control(1, std::span(data).first(513)));
  ASSERT_TRUE(job.poll_until([&] {
    return job[0].events.completed[1] == static_cast<std::uint64_t>(posted) &&
           job[1].events.controls[0].size() == static_cast<std::size_t>(controls);
  }));
}

TEST(TcpRail, AcknowledgesASingleChunkWithoutFurtherTraffic) {
  TestJob job(2, 64);
  job.connect(0, 1);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
  const auto data = pattern(64, 6);
  ASSERT_TRUE(job[0].rail->post(1, make_chunk(data, 0, 11)));
  EXPECT_TRUE(job.poll_until([&] { return job[0].events.completed[1] == 1; }));
  // And at once when told to.
  ASSERT_TRUE(job[0].rail->post(1, make_chunk(data, 0, 12)));
  while (job[1].events.arrived[0].size() < 2) job[1].rail->poll(job[1].events);
  job[1].rail->flush_acknowledgements();
  job[0].rail->poll(job[0].events);
  EXPECT_EQ(job[0].events.completed[1], 2U);
}

TEST(TcpRail, LeavesToWhatGoesBackWhatThatHasAcknowledgedBefore) {
  TestJob job(2, 64);
  job.connect(0, 1);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
  const auto data = pattern(64, 6);
  std::uint64_t sent = 0;
  const auto send = [&] {
    ASSERT_TRUE(job[0].rail->post(1, make_chunk(data, 0, 1)));
    ++sent;
    while (job[1].events.arrived[0].size() < sent) job[1].rail->poll(job[1].events);
  };
  const auto is_acknowledged = [&] {
    job[0].rail->poll(job[0].events);
    return job[0].events.completed[1] == sent;
  };
  send();
  job[1].rail->acknowledge_unanswered();
  EXPECT_TRUE(is_acknowledged()) << "nothing has gone back so far";

  send();
  ASSERT_TRUE(job[1].rail->post(0, make_chunk(data, 0, 1)));
  EXPECT_TRUE(is_acknowledged());
  send();
  job[1].rail->acknowledge_unanswered();
  EXPECT_FALSE(is_acknowledged());
  job[1].rail->flush_acknowledgements();
  EXPECT_TRUE(is_acknowledged());
  send();
  job[1].rail->acknowledge_unanswered();
  EXPECT_TRUE(is_acknowledged()) << "the last chunk was not acknowledged by what went back";
}

TEST(TcpRail, ThrowsUnwantedPayloadAway) {
  TestJob job(2, 1 << 20);
  job.connect(0, 1);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
  job[1].events.wanted = [](int, std::uint32_t immediate) { return immediate != 1; };
  const auto data = pattern(1 << 20, 7);
  ASSERT_TRUE(job[0].rail->post(1, make_chunk(data, 0, 1)));
  ASSERT_TRUE(job.poll_until([&] { return job[0].events.completed[1] == 1; }));
  EXPECT_TRUE(all_are(job[1].memory, std::byte{}));
  EXPECT_TRUE(job[1].events.arrived[0].empty());
  ASSERT_TRUE(job[0].rail->post(1, make_chunk(data, 0, 2)));
  ASSERT_TRUE(job.poll_until([&] { return job[0].events.completed[1] == 2; }));
  EXPECT_TRUE(same_bytes(job[1].memory, data));
}

TEST(TcpRail, WritesIntoRegisteredWindowsOnly) {
  TestJob job(2, 64);
  job.connect(0, 1);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
  std::vector<std::byte> window(1000);
  const RemoteKey key = job[1].rail->register_window(window);
  const auto data = pattern(1000, 8);
  Chunk chunk = make_chunk(data, 0, 1);
  chunk.primary = false;
  chunk.window = key;
  ASSERT_TRUE(job[0].rail->post(1, chunk));
  ASSERT_TRUE(job.poll_until([&] { return job[0].events.completed[1] == 1; }));
  EXPECT_TRUE(window == data);

  job[1].rail->unregister_window(key);
  std::fill(window.begin(), window.end(), std::byte{0});
  ASSERT_TRUE(job[0].rail->post(1, chunk));
  ASSERT_TRUE(job.poll_until([&] { return job[1].events.downs[0] == 1; }));
  EXPECT_EQ(job[1].events.last_reason, "the peer wrote into a window that is not registered");
  EXPECT_TRUE(window == std::vector<std::byte>(1000));
  ASSERT_TRUE(job.poll_until([&] { return job[0].events.ups[1] == 2 && job.linked(0, 1); }));

  chunk = make_chunk(data, 0, 2);  // longer than the primary window
  ASSERT_TRUE(job[0].rail->post(1, chunk));
  ASSERT_TRUE(job.poll_until([&] { return job[1].events.downs[0] == 2; }));
  EXPECT_EQ(job[1].events.last_reason, "the peer wrote beyond the end of a window");
}

TEST(TcpRail, UnregisteringUnderAChunkTakesTheLinkDown) {
  constexpr std::size_t kBytes = 8U << 20;
  TestJob job(2, 64);
  job.connect(0, 1);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
  std::vector<std::byte> window(kBytes);
  const auto data = pattern(kBytes, 9);
  Chunk chunk = make_chunk(data, 0, 1);
  chunk.primary = false;
  chunk.window = job[1].rail->register_window(window);
  ASSERT_TRUE(job[0].rail->post(1, chunk));
  ASSERT_TRUE(job.poll_until([&] { return window[0] == data[0] && window[100] == data[100]; }));
  ASSERT_TRUE(job[1].events.arrived[0].empty());
  job[1].rail->unregister_window(chunk.window);
  std::fill(window.begin(), window.end(), std::byte{0});
  ASSERT_TRUE(job.poll_until([&] { return job[1].events.downs[0] == 1; }));
  EXPECT_TRUE(all_are(window, std::byte{}));
  EXPECT_TRUE(job[1].events.arrived[0].empty());
}

TEST(TcpRail, ServesManyPeers) {
  constexpr int kSize = 8;
  constexpr std::size_t kBytes = 100'000;
  TestJob job(kSize, kBytes * kSize);
  for (int a = 0; a < kSize; ++a) {
    for (int b = a + 1; b < kSize; ++b) job.connect(a, b);
  }
  ASSERT_TRUE(job.poll_until([&] {
    for (int a = 0; a < kSize; ++a) {
      for (int b = 0; b < kSize; ++b) {
        if (a != b && !job[a].rail->is_up(b)) return false;
      }
    }
    return true;
  }));
  std::vector<std::vector<std::byte>> data;
  for (int a = 0; a < kSize; ++a) {
    data.push_back(pattern(kBytes, static_cast<std::uint64_t>(a)));
    std::copy(data.back().begin(), data.back().end(),
              job[a].memory.begin() + static_cast<std::ptrdiff_t>(kBytes) * a);
  }
  for (int a = 0; a < kSize; ++a) {
    for (int b = 0; b < kSize; ++b) {
      if (a == b) continue;
      const auto offset = kBytes * static_cast<std::size_t>(a);
      ASSERT_TRUE(job[a].rail->post(b, make_chunk(data[static_cast<std::size_t>(a)], offset, 1)));
    }
  }
  ASSERT_TRUE(job.poll_until([&] {
    for (int a = 0; a < kSize; ++a) {
      for (int b = 0; b < kSize; ++b) {
        if (a != b && job[a].events.completed[b] != 1) return false;
      }
    }
    return true;
  }));
  for (int a = 1; a < kSize; ++a)
    EXPECT_TRUE(same_bytes(job[a].memory, job[0].memory)) << "rank " << a;
}

bool sleep_on(Rail& rail, int timeout_ms) {
  rail.prepare_sleep();
  pollfd waited{rail.event_descriptor(), POLLIN, 0};
  return ::poll(&waited, 1, timeout_ms) == 1;
}

TEST(TcpRail, WakesSleepersForEverythingThatHappens) {
  TestJob job(2, 64U << 20);
  const auto until = [&](const std::function<bool()>& done) {
    // Each rail is polled only after its descriptor said that there is something to do.
    const base::Deadline deadline = base::Deadline::after(std::chrono::seconds(10));
    job.poll();
    while (!done()) {
      if (deadline.passed()) return false;
      for (int rank = 0; rank < 2; ++rank) {
        if (sleep_on(*job[rank].rail, 1)) job[rank].rail->poll(job[rank].events);
      }
    }
    return true;
  };
  job.connect(0, 1);
  ASSERT_TRUE(until([&] { return job.linked(0, 1); }));
  const auto data = pattern(64U << 20, 14);
  for (std::uint32_t i = 0; i < 16; ++i) {
    const auto piece = std::span(data).subspan(i * (4U << 20), 4U << 20);
    ASSERT_TRUE(job[0].rail->post(1, make_chunk(piece, i * (4U << 20), i)));
  }
  ASSERT_TRUE(until([&] { return job[0].events.completed[1] == 16; }));
  EXPECT_TRUE(same_bytes(job[1].memory, data));
  // Nothing is left to do: the descriptors are quiet, but for a timer that was set before.
  job.poll_for(std::chrono::milliseconds(5));
  int wakes = 0;
  for (int i = 0; i < 10; ++i) {
    for (int rank = 0; rank < 2; ++rank) {
      if (!sleep_on(*job[rank].rail, 20)) continue;
      ++wakes;
      job[rank].rail->poll(job[rank].events);
    }
  }
  EXPECT_LE(wakes, 4);
  job[1].rail->close(0, job[1].events);
  ASSERT_TRUE(until([&] { return job[0].events.downs[1] == 1 && job.linked(0, 1); }));
}

}  // namespace
}  // namespace allrail::transport
