// Which chunks wait for others, read from the sockets' own options.
#include "transport/tcp/coalescing.hpp"

#include <cstdlib>
#include <filesystem>
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

int count_with(int option, int value) {
  int count = 0;
  for (const int fd : connections()) {
    int now = -1;
    socklen_t length = sizeof now;
    EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, option, &now, &length), 0);
    count += now == value ? 1 : 0;
  }
  return count;
}

int holding_back() { return count_with(TCP_NODELAY, 0); }
int acknowledging_at_once() { return count_with(TCP_QUICKACK, 1); }

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

/// As after an exchange: the kernel waits for something to go back before it acknowledges.
void acknowledge_late() {
  const int off = 0;
  for (const int fd : connections()) {
    ASSERT_EQ(::setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off), 0);
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
  void receive_all() {
    const auto& arrived = job_[1].events.arrived[0];
    ASSERT_TRUE(job_.poll_until([&] { return arrived.size() == next_; }));
  }

  TestJob job_{2, std::size_t{64} * 1024};
  std::vector<std::byte> data_ = pattern(std::size_t{64} * 1024, 5);
  std::uint32_t next_ = 0;
};

TEST_F(Coalesced, AreHeldBackFromTheThirdInTurnOn) {
  post(8, true);
  EXPECT_EQ(holding_back(), 0) << "one chunk alone";
  post(1024, true);
  EXPECT_EQ(holding_back(), 1) << "two are a stream";
  for (int i = 0; i < 40; ++i) post(8, true);
  EXPECT_EQ(holding_back(), 1);
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
    for (int i = 0; i < 4; ++i) post(8, true);
    EXPECT_EQ(holding_back(), 1);
    other();
    EXPECT_EQ(holding_back(), 0);
    post(8, true);
    EXPECT_EQ(holding_back(), 0) << "the stream began again";
    other();
    receive_all();
  }
}

/// Whether the receiver's kernel acknowledged at once, in one of several tries: an acknowledgement
/// of ours may come in between and makes it wait again, and a long pause ends its waiting.
TEST_F(Coalesced, AreAcknowledgedWhenTheyAreRead) {
  const auto once = [&](bool coalesce, int wanted) {
    for (int attempt = 0; attempt < 50; ++attempt) {
      post(8, coalesce);
      receive_all();
      acknowledge_late();
      post(8, coalesce);
      receive_all();
      if (acknowledging_at_once() == wanted) return true;
    }
    return false;
  };
  EXPECT_TRUE(once(false, 0)) << "nothing waits for it";
  EXPECT_TRUE(once(true, 1)) << "the sender holds back";
  EXPECT_TRUE(once(false, 0));
}

TEST_F(Coalesced, LeaveAtOnceThoughAStreamBeginsBeforeTheyDo) {
  for (int i = 0; i < 4; ++i) post(8, true);
  ASSERT_EQ(holding_back(), 1);
  // Frames of this length lie in the rail until submit().
  constexpr std::uint32_t kLies = 1200;
  for (const bool coalesce : {false, true, true}) {
    Chunk chunk = make_chunk(std::span(data_).first(kLies), 0, next_++);
    chunk.coalesce = coalesce;
    ASSERT_TRUE(job_[0].rail->post(1, chunk));
  }
  job_[0].rail->submit();
  EXPECT_EQ(holding_back(), 0) << "the first of them answers somebody";
  post(8, true);
  EXPECT_EQ(holding_back(), 1);
  receive_all();
}

TEST_F(Coalesced, AConnectionBeginsWithoutIt) {
  for (int i = 0; i < 4; ++i) post(8, true);
  receive_all();
  EXPECT_EQ(holding_back(), 1);
  job_[0].rail->close(1, job_[0].events);
  ASSERT_TRUE(job_.poll_until([&] { return job_[1].events.downs[0] == 1; }));
  ASSERT_TRUE(job_.poll_until([&] { return job_.linked(0, 1); }));
  EXPECT_EQ(holding_back(), 0);
  post(8, true);
  EXPECT_EQ(holding_back(), 0);
  post(8, true);
  EXPECT_EQ(holding_back(), 1) << "a stream as any other";
  receive_all();
}

/// What the kernel did not send yet would wait with them, and its receiver would not know.
TEST_F(Coalesced, AreNotHeldBackBehindBytesThatTheKernelHasNotSent) {
  while (unsent_bytes() == 0) post(64 * 1024, false);
  ASSERT_TRUE(job_[0].rail->flushed()) << "the rail itself has something left";
  for (int i = 0; i < 4; ++i) post(8, true);
  EXPECT_EQ(holding_back(), 0);
  receive_all();
  post(8, true);
  EXPECT_EQ(holding_back(), 1);
  receive_all();
}

}  // namespace
}  // namespace allrail::transport
