#include <random>
#include <string>
#include <vector>

#include <dirent.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/log.hpp"
#include "tests/unit/tcp/test_rails.hpp"
#include "transport/tcp/acceptor.hpp"

namespace allrail::transport {
namespace {

int open_descriptors() {
  DIR* directory = ::opendir("/proc/self/fd");
  int count = 0;
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count;
}

base::UniqueFd connect_to(const Endpoint& to) {
  int error_number = 0;
  return start_connect(parse_address("127.0.0.5").value(), to, "", error_number);
}

std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

HandshakeIdentity identity_of(const JobSecret& secret, int rank) {
  return {secret, 1, rank, 200, 0, Purpose::ControlLink};
}

/// Rank 3, over a connection that it has made.
std::optional<AcceptedConnection> admit(Acceptor& acceptor, const JobSecret& secret,
                                        const base::UniqueFd& member) {
  ClientHandshake handshake(identity_of(secret, 3), 100);
  std::optional<AcceptedConnection> accepted;
  const base::Deadline deadline = base::Deadline::after(std::chrono::seconds(5));
  while (!accepted && !deadline.passed()) {
    (void)handshake.step(member.get());
    accepted = acceptor.poll();
  }
  return accepted;
}

TEST(Acceptor, HoldsAtMost64ConnectionsThatProveNothing) {
  base::set_log(base::Level::Off, -1);
  const JobSecret secret = JobSecret::random();
  Acceptor acceptor(parse_address("127.0.0.2").value(), identity_of(secret, 100));
  std::vector<base::UniqueFd> strangers;
  const int before = open_descriptors();
  for (int i = 0; i < 200; ++i) strangers.push_back(connect_to(acceptor.endpoint()));
  // All have come, however long that takes on a busy machine, and then for a while longer.
  const base::Deadline limit = base::Deadline::after(std::chrono::seconds(30));
  const base::Deadline flood_over = base::Deadline::after(std::chrono::milliseconds(500));
  while (!flood_over.passed() ||
         (acceptor.stranger_count() < 200U - Acceptor::kMaxPending && !limit.passed())) {
    ASSERT_FALSE(acceptor.poll());
    ASSERT_LE(acceptor.pending_count(), Acceptor::kMaxPending);
  }
  EXPECT_EQ(acceptor.pending_count(), Acceptor::kMaxPending);
  EXPECT_EQ(acceptor.stranger_count(), 200U - Acceptor::kMaxPending);
  EXPECT_LE(open_descriptors() - before, 200 + Acceptor::kMaxPending);
  // A member still gets in.
  base::UniqueFd member = connect_to(acceptor.endpoint());
  const auto accepted = admit(acceptor, secret, member);
  ASSERT_TRUE(accepted);
  EXPECT_EQ(accepted->peer_rank, 3);
  base::set_log(base::Level::Warning, -1);
}

bool is_readable(int descriptor) {
  pollfd one{descriptor, POLLIN, 0};
  return ::poll(&one, 1, 0) > 0;
}

/// While it lives, no descriptor can be made.
class NoDescriptors {
 public:
  NoDescriptors() {
    (void)::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(base::UniqueFd(::dup(0)).get());
    (void)::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { (void)::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST(Acceptor, DoesNotWakeASleeperForWhatItCannotTake) {
  const JobSecret secret = JobSecret::random();
  Acceptor acceptor(parse_address("127.0.0.2").value(), identity_of(secret, 100));
  base::UniqueFd member = connect_to(acceptor.endpoint());
  ASSERT_TRUE(is_readable(acceptor.event_descriptor()));
  EXPECT_FALSE(acceptor.needs_poll());
  ::testing::internal::CaptureStderr();
  {
    const NoDescriptors none;
    EXPECT_FALSE(acceptor.poll());
    EXPECT_FALSE(is_readable(acceptor.event_descriptor()));
    EXPECT_TRUE(acceptor.needs_poll());
    EXPECT_GT(acceptor.wake_at_ns(), base::now_ns());
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("raise the limit of open files"), std::string::npos) << log;
  // As soon as there are descriptors again, it gets in.
  const auto accepted = admit(acceptor, secret, member);
  ASSERT_TRUE(accepted);
  EXPECT_FALSE(acceptor.needs_poll());
}

TEST(Acceptor, DropsConnectionsThatStaySilent) {
  base::set_log(base::Level::Off, -1);
  Acceptor acceptor(parse_address("127.0.0.2").value(), identity_of(JobSecret(), 100));
  const base::UniqueFd stranger = connect_to(acceptor.endpoint());
  const std::int64_t start_ns = base::now_ns();
  while (acceptor.stranger_count() == 0 && base::now_ns() - start_ns < 10'000'000'000) {
    (void)acceptor.poll();
  }
  const std::int64_t took_ms = (base::now_ns() - start_ns) / 1'000'000;
  EXPECT_EQ(acceptor.stranger_count(), 1U);
  EXPECT_EQ(acceptor.pending_count(), 0);
  EXPECT_GE(took_ms, kStrangerDeadlineMs - 100);
  EXPECT_LE(took_ms, kStrangerDeadlineMs + 2'000);
  char byte = 0;
  EXPECT_EQ(::recv(stranger.get(), &byte, 1, 0), 0) << "a stranger was answered";
  base::set_log(base::Level::Warning, -1);
}

TEST(Acceptor, LosesNoMemberWhenAllConnectAtOnce) {
  const JobSecret secret = JobSecret::random();
  Acceptor acceptor(parse_address("127.0.0.2").value(), identity_of(secret, 199));
  struct Member {
    base::UniqueFd fd;
    std::unique_ptr<ClientHandshake> handshake;
    HandshakeState state = HandshakeState::InProgress;
  };
  std::vector<Member> members;
  for (int rank = 0; rank < 150; ++rank) {
    members.push_back({connect_to(acceptor.endpoint()),
                       std::make_unique<ClientHandshake>(identity_of(secret, rank), 199)});
  }
  std::vector<int> seen(200);
  int done = 0;
  const base::Deadline deadline = base::Deadline::after(std::chrono::seconds(10));
  while (done < 150 && !deadline.passed()) {
    for (Member& member : members) {
      if (member.state == HandshakeState::InProgress) {
        member.state = member.handshake->step(member.fd.get());
        ASSERT_NE(member.state, HandshakeState::Failed) << member.handshake->failure_text();
      }
    }
    // Slow on purpose: the places fill up.
    if (const auto accepted = acceptor.poll()) {
      ++seen[static_cast<std::size_t>(accepted->peer_rank)];
      ++done;
    }
  }
  EXPECT_EQ(done, 150);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 150);
  EXPECT_EQ(acceptor.stranger_count(), 0U);
}

TEST(TcpRail, ALinkWorksWhileStrangersFloodTheListener) {
  constexpr std::size_t kChunkBytes = 100'000;
  TestJob job(2, kChunkBytes);
  job.connect(0, 1);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
  const auto address = job[1].rail->address();
  const Endpoint target = decode_endpoint(std::span(address).subspan(4)).value();
  std::mt19937_64 random(5);
  std::vector<std::byte> data(kChunkBytes);
  for (std::byte& one : data) one = static_cast<std::byte>(random());

  ::testing::internal::CaptureStderr();
  const int before = open_descriptors();
  std::vector<base::UniqueFd> strangers(200);
  std::uint64_t posted = 0;
  for (std::size_t i = 0; i < 1000; ++i) {
    base::UniqueFd stranger = connect_to(target);
    if (i % 4 != 0) {
      std::vector<std::byte> blob(random() % 400 + 1);
      for (std::byte& one : blob) one = static_cast<std::byte>(random());
      (void)!::send(stranger.get(), blob.data(), blob.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    strangers[i % strangers.size()] = std::move(stranger);
    Chunk chunk;
    chunk.from = data.data();
    chunk.bytes = kChunkBytes;
    chunk.immediate = static_cast<std::uint32_t>(posted);
    if (job[0].rail->post(1, chunk)) ++posted;
    for (int k = 0; k < 10; ++k) job.poll();
    ASSERT_LE(open_descriptors() - before, 200 + Acceptor::kMaxPending + 2);
  }
  EXPECT_TRUE(job.poll_until([&] { return job[0].events.completed[1] == posted; }));
  EXPECT_TRUE(job.poll_until([&] { return tcp_rail_stranger_count(*job[1].rail) >= 900; }));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(posted, 1000U);
  EXPECT_TRUE(job[1].memory == data);
  EXPECT_EQ(job[0].events.downs[1] + job[1].events.downs[0], 0);
  EXPECT_EQ(count_of(log, "did not prove that it belongs to this job"), 1U) << log;
  EXPECT_NE(log.find("127.0.0.5"), std::string::npos) << log;
}

}  // namespace
}  // namespace allrail::transport
