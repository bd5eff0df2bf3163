// Which chunks wait for others, read from the sockets' own options.
#include "transport/tcp/coalescing.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "tests/unit/tcp/test_rails.hpp"

namespace allrail::transport {
namespace {

/// The connections of this process: both ends of every link.
std::vector<int> connections() {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
        info.tcpi_state == TCP_ESTABLISHED) {
      found.push_back(fd);
    }
  }
  return found;
}

int value_of(int fd, int option) {
  int value = -1;
  socklen_t length = sizeof value;
  EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, option, &value, &length), 0);
  return value;
}

bool holds_back(int fd) { return value_of(fd, TCP_NODELAY) == 0; }
int holding_back() { return static_cast<int>(std::ranges::count_if(connections(), holds_back)); }

/// Of those that do not hold back: in a stream that is the receiving end.
int acknowledging_at_once() {
  return static_cast<int>(std::ranges::count_if(
      connections(), [](int fd) { return !holds_back(fd) && value_of(fd, TCP_QUICKACK) == 1; }));
}

/// That kernels have taken and not sent, of all connections.
int unsent_bytes() {
  int all = 0;
  for (const int fd : connections()) {
    int bytes = 0;
    EXPECT_EQ(::ioctl(fd, SIOCOUTQNSD, &bytes), 0);
    all += bytes;
  }
  return all;
}

/// An acknowledgement of ours may come in between, and brings that of the kernel along.
bool in_one_of_many_tries(const std::function<bool()>& try_it) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (try_it()) return true;
  }
  return false;
}

/// 0, as after an exchange: the kernel waits for something to go back before it acknowledges.
void set_acknowledging(int at_once) {
  for (const int fd : connections()) {
    ASSERT_EQ(::setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &at_once, sizeof at_once), 0);
  }
}

class Coalesced : public ::testing::Test {
 protected:
  void SetUp() override {
    job_.connect(0, 1);
    ASSERT_TRUE(job_.poll_until([&] { return job_.linked(0, 1); }));
    ASSERT_EQ(connections().size(), 2U);
  }

  void post(std::uint32_t bytes, bool coalesce) {
    Chunk chunk = make_chunk(std::span(data_).first(bytes), 0, next_++);
    chunk.coalesce = coalesce;
    ASSERT_TRUE(job_[0].rail->post(1, chunk));
    job_[0].rail->submit();
  }
  /// Posts until the kernel holds back: between two posts this process may lose its core.
  [[nodiscard]] bool hold_back(std::uint32_t bytes = 8) {
    return in_one_of_many_tries([&] {
      for (int i = 0; i < 3; ++i) post(bytes, true);
      return holding_back() == 1;
    });
  }
  void receive_all() {
    const auto& arrived = job_[1].events.arrived[0];
    ASSERT_TRUE(job_.poll_until([&] { return arrived.size() == next_; }));
  }

  Rail& sender() { return *job_[0].rail; }
  Rail& receiver() { return *job_[1].rail; }
  bool is_withheld_after_reading() {
    for (int i = 0; i < 3; ++i) post(8, true);
    receive_all();
    return sender().undelivered_bytes(1) > 0;
  }

  TestJob job_{2, std::size_t{64} * 1024};
  std::vector<std::byte> data_ = pattern(std::size_t{64} * 1024, 5);
  std::uint32_t next_ = 0;
};

TEST_F(Coalesced, AreHeldBackFromTheThirdInTurnOn) {
  post(8, true);
  EXPECT_EQ(holding_back(), 0) << "one chunk alone";
  EXPECT_TRUE(hold_back(1024)) << "two are a stream";
  for (int i = 0; i < 40; ++i) post(8, true);
  EXPECT_TRUE(hold_back());
  receive_all();
}

TEST_F(Coalesced, LeaveAtOnceWhereTheirSenderTakesItsTime) {
  EXPECT_TRUE(hold_back());
  std::this_thread::sleep_for(std::chrono::microseconds(200));
  post(8, true);
  EXPECT_EQ(holding_back(), 0);
  receive_all();
}

TEST_F(Coalesced, LeaveAtOnceWhenAnotherFrameFollows) {
  const std::vector<std::byte> word(8);
  const std::vector<std::function<void()>> others = {
      [&] { post(8, false); },
      [&] { post(kMostCoalescedBytes + 1, true); },
      [&] { ASSERT_TRUE(job_[0].rail->post_control(1, word)); },
  };
  for (const auto& other : others) {
    ASSERT_TRUE(hold_back());
    other();
    EXPECT_EQ(holding_back(), 0);
    post(8, true);
    EXPECT_EQ(holding_back(), 0) << "the stream began again";
    other();
    receive_all();
  }
}

TEST_F(Coalesced, AreNotAcknowledgedAsSoonAsTheyAreRead) {
  EXPECT_TRUE(in_one_of_many_tries([&] { return is_withheld_after_reading(); }));
  // By a receiver of the test's own, since that of the rail acknowledges once it has waited: where
  // nothing was to be acknowledged, the kernel has its own rules again until the next chunk.
  const int fd = connections().front();
  SegmentAcknowledgements acknowledgements;
  for (int acknowledged = 0; acknowledged < 3; ++acknowledged) {
    set_acknowledging(1);
    acknowledgements.note_read(fd, true);
    EXPECT_EQ(value_of(fd, TCP_QUICKACK), 0);
    EXPECT_TRUE(acknowledgements.are_withheld());
    acknowledgements.send(fd);
    EXPECT_FALSE(acknowledgements.are_withheld());
  }
  acknowledgements.note_read(fd, false);
  EXPECT_EQ(value_of(fd, TCP_QUICKACK), 1);
}

TEST_F(Coalesced, AreAcknowledgedOnceTheirReceiverHasWaited) {
  EXPECT_TRUE(in_one_of_many_tries([&] {
    if (!is_withheld_after_reading()) return false;
    const std::uint64_t completed = job_[0].events.completed[1];
    const base::Deadline deadline = base::Deadline::after(std::chrono::seconds(10));
    while (sender().undelivered_bytes(1) != 0 && !deadline.passed()) {
      receiver().poll(job_[1].events);
    }
    // By the kernel, which nobody told of chunks that have come.
    sender().poll(job_[0].events);
    return job_[0].events.completed[1] == completed;
  }));
}

TEST_F(Coalesced, AreAcknowledgedBeforeTheirReceiverSleeps) {
  EXPECT_TRUE(in_one_of_many_tries([&] {
    if (!is_withheld_after_reading()) return false;
    receiver().prepare_sleep();
    return sender().undelivered_bytes(1) == 0;
  }));
}

TEST_F(Coalesced, LeaveTheKernelToItselfWhenTheStreamEnds) {
  EXPECT_TRUE(in_one_of_many_tries([&] {
    for (int i = 0; i < 3; ++i) post(8, true);
    receive_all();
    set_acknowledging(0);
    post(8, false);
    receive_all();
    return acknowledging_at_once() == 1;
  }));
}

TEST_F(Coalesced, LeaveAtOnceThoughAStreamBeginsBeforeTheyDo) {
  ASSERT_TRUE(hold_back());
  // Frames of this length lie in the rail until submit().
  constexpr std::uint32_t kLies = 1200;
  for (const bool coalesce : {false, true, true}) {
    Chunk chunk = make_chunk(std::span(data_).first(kLies), 0, next_++);
    chunk.coalesce = coalesce;
    ASSERT_TRUE(job_[0].rail->post(1, chunk));
  }
  job_[0].rail->submit();
  EXPECT_EQ(holding_back(), 0) << "the first of them answers somebody";
  EXPECT_TRUE(hold_back());
  receive_all();
}

TEST_F(Coalesced, AConnectionBeginsWithoutIt) {
  ASSERT_TRUE(hold_back());
  receive_all();
  job_[0].rail->close(1, job_[0].events);
  ASSERT_TRUE(job_.poll_until([&] { return job_[1].events.downs[0] == 1; }));
  ASSERT_TRUE(job_.poll_until([&] { return job_.linked(0, 1); }));
  EXPECT_EQ(holding_back(), 0);
  post(8, true);
  EXPECT_EQ(holding_back(), 0);
  EXPECT_TRUE(hold_back()) << "a stream as any other";
  receive_all();
}

/// What the kernel did not send yet would wait with them, and its receiver would not know.
TEST_F(Coalesced, AreNotHeldBackBehindBytesThatTheKernelHasNotSent) {
  while (unsent_bytes() == 0) post(64 * 1024, false);
  ASSERT_TRUE(job_[0].rail->flushed()) << "the rail itself has something left";
  for (int i = 0; i < 4; ++i) post(8, true);
  EXPECT_EQ(holding_back(), 0);
  receive_all();
  EXPECT_TRUE(hold_back());
  receive_all();
}

}  // namespace
}  // namespace allrail::transport
