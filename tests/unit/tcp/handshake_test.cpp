#include "transport/tcp/handshake.hpp"

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "include/allrail/error.hpp"
#include "lib/base/handle.hpp"

namespace allrail::transport {
namespace {

using Bytes = std::vector<std::byte>;

struct SocketPair {
  SocketPair() {
    int fds[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) abort();
    client = base::UniqueFd(fds[0]);
    server = base::UniqueFd(fds[1]);
  }
  base::UniqueFd client, server;
};

Bytes read_all(int fd) {
  Bytes bytes(4096);
  const ssize_t count = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
  bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return bytes;
}

void write_all(int fd, std::span<const std::byte> bytes) {
  ASSERT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

Bytes to_bytes(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return Bytes(first, first + text.size());
}

class HandshakeTest : public ::testing::Test {
 protected:
  HandshakeTest() {
    server_identity_ = {secret_, 77, 5, 8, 1, Purpose::RailLink};
    client_identity_ = server_identity_;
    client_identity_.rank = 2;
  }
  void make(int to_rank = 5, const std::string& client_extra = "",
            const std::string& server_extra = "") {
    client_.emplace(client_identity_, to_rank, to_bytes(client_extra));
    server_.emplace(server_identity_, to_bytes(server_extra));
  }
  /// Steps both sides until neither can go on.
  void run() {
    for (int i = 0; i < 10; ++i) {
      if (client_state_ == HandshakeState::InProgress) {
        client_state_ = client_->step(sockets_.client.get());
        if (client_state_ == HandshakeState::Failed) sockets_.client.reset();
      }
      if (server_state_ == HandshakeState::InProgress) {
        server_state_ = server_->step(sockets_.server.get());
        if (server_state_ == HandshakeState::Failed) sockets_.server.reset();
      }
    }
  }
  void expect_both_fail(const std::string& server_text) {
    run();
    EXPECT_EQ(server_state_, HandshakeState::Failed);
    EXPECT_NE(server_->failure_text().find(server_text), std::string::npos)
        << server_->failure_text();
    EXPECT_EQ(client_state_, HandshakeState::Failed);
    EXPECT_FALSE(client_->failure_text().empty());
  }

  JobSecret secret_ = JobSecret::random();
  HandshakeIdentity server_identity_, client_identity_;
  SocketPair sockets_;
  std::optional<ClientHandshake> client_;
  std::optional<ServerHandshake> server_;
  HandshakeState client_state_ = HandshakeState::InProgress;
  HandshakeState server_state_ = HandshakeState::InProgress;
};

TEST_F(HandshakeTest, AuthenticatesBothAndCarriesExtra) {
  const std::string longest(kMaxHandshakeExtraBytes, 'x');
  make(5, longest, "from server");
  run();
  EXPECT_EQ(client_state_, HandshakeState::Done) << client_->failure_text();
  EXPECT_EQ(server_state_, HandshakeState::Done) << server_->failure_text();
  EXPECT_EQ(server_->peer_rank(), 2);
  EXPECT_EQ(Bytes(server_->peer_extra().begin(), server_->peer_extra().end()), to_bytes(longest));
  EXPECT_EQ(Bytes(client_->peer_extra().begin(), client_->peer_extra().end()),
            to_bytes("from server"));
}

TEST_F(HandshakeTest, LeavesWhatFollowsInTheSocket) {
  make();
  EXPECT_EQ(client_->step(sockets_.client.get()), HandshakeState::InProgress);
  EXPECT_EQ(server_->step(sockets_.server.get()), HandshakeState::InProgress);
  EXPECT_EQ(client_->step(sockets_.client.get()), HandshakeState::Done);
  write_all(sockets_.client.get(), to_bytes("first frame"));
  EXPECT_EQ(server_->step(sockets_.server.get()), HandshakeState::Done);
  EXPECT_EQ(read_all(sockets_.server.get()), to_bytes("first frame"));
}

TEST_F(HandshakeTest, RefusesExtraThatIsTooLong) {
  EXPECT_THROW(make(5, std::string(kMaxHandshakeExtraBytes + 1, 'x')), Error);
}

TEST_F(HandshakeTest, RefusesAnotherSecret) {
  client_identity_.secret = JobSecret::random();
  make();
  expect_both_fail("secret");
  EXPECT_FALSE(server_->hello_accepted() && server_->peer_rank() >= 0);
}

TEST_F(HandshakeTest, RefusesAnotherJob) {
  client_identity_.job_hash = 78;
  make();
  expect_both_fail("another job");
}

TEST_F(HandshakeTest, RefusesTheWrongTarget) {
  make(6);
  expect_both_fail("it wants rank 6, and this is rank 5");
}

TEST_F(HandshakeTest, RefusesARankOutsideTheJob) {
  client_identity_.rank = 8;
  make();
  expect_both_fail("rank 8 of 8");
}

TEST_F(HandshakeTest, RefusesItsOwnRank) {
  client_identity_.rank = 5;
  make();
  expect_both_fail("rank 5 of 8");
}

TEST_F(HandshakeTest, RefusesAnotherRailOrPurpose) {
  client_identity_.rail = 0;
  make();
  expect_both_fail("another rail");
}

TEST_F(HandshakeTest, RefusesAnotherPurpose) {
  client_identity_.purpose = Purpose::ControlLink;
  make();
  expect_both_fail("another kind of link");
}

TEST_F(HandshakeTest, NamesBothVersionsToBothSides) {
  make();
  SocketPair wire;
  EXPECT_EQ(client_->step(wire.client.get()), HandshakeState::InProgress);
  Bytes hello = read_all(wire.server.get());
  ASSERT_EQ(hello.size(), kHelloBytes);
  hello[4] = std::byte{9};
  write_all(sockets_.client.get(), hello);
  EXPECT_EQ(server_->step(sockets_.server.get()), HandshakeState::Failed);
  const std::string both = fmt::format("version 9, this process version {}", kProtocolVersion);
  EXPECT_NE(server_->failure_text().find(both), std::string::npos);
  // The server's answer, as a client of a version to come would see our version.
  Bytes answer = read_all(sockets_.client.get());
  ASSERT_EQ(answer.size(), 8U);
  answer[4] = std::byte{7};
  write_all(wire.server.get(), answer);
  EXPECT_EQ(client_->step(wire.client.get()), HandshakeState::Failed);
  EXPECT_NE(client_->failure_text().find("rank 5 speaks protocol version 7"), std::string::npos)
      << client_->failure_text();
}

TEST_F(HandshakeTest, FailsWhenCutShort) {
  for (std::size_t kept = 0; kept < kHelloBytes; kept += 13) {
    SocketPair wire, target;
    make();
    ASSERT_EQ(client_->step(wire.client.get()), HandshakeState::InProgress);
    const Bytes hello = read_all(wire.server.get());
    write_all(target.client.get(), std::span(hello).first(kept));
    ASSERT_EQ(server_->step(target.server.get()), HandshakeState::InProgress);
    target.client.reset();
    EXPECT_EQ(server_->step(target.server.get()), HandshakeState::Failed);
    EXPECT_NE(server_->failure_text().find("closed"), std::string::npos);
  }
}

TEST_F(HandshakeTest, WorksByteByByte) {
  make(5, "abc", "def");
  SocketPair client_wire, server_wire;
  const auto carry = [](int from, int to, auto step) {
    for (const std::byte& one : read_all(from)) {
      write_all(to, {&one, 1});
      step();
    }
  };
  for (int i = 0; i < 4 && server_state_ == HandshakeState::InProgress; ++i) {
    client_state_ = client_->step(client_wire.client.get());
    carry(client_wire.server.get(), server_wire.client.get(),
          [&] { server_state_ = server_->step(server_wire.server.get()); });
    carry(server_wire.client.get(), client_wire.server.get(),
          [&] { client_state_ = client_->step(client_wire.client.get()); });
    carry(client_wire.server.get(), server_wire.client.get(),
          [&] { server_state_ = server_->step(server_wire.server.get()); });
  }
  EXPECT_EQ(server_state_, HandshakeState::Done) << server_->failure_text();
  EXPECT_EQ(client_state_, HandshakeState::Done) << client_->failure_text();
}

TEST_F(HandshakeTest, RefusesRandomBlobsAndReadsAtMost256Bytes) {
  std::mt19937_64 random(4711);
  for (int i = 0; i < 1000; ++i) {
    SocketPair wire;
    ServerHandshake server(server_identity_);
    Bytes blob(random() % 600 + 1);
    for (std::byte& one : blob) one = static_cast<std::byte>(random());
    if (i % 3 == 0) {  // past the magic
      const Bytes start = to_bytes(std::string("alrl\1\0\1\1", 8));
      std::copy_n(start.begin(), std::min(start.size(), blob.size()), blob.begin());
    }
    write_all(wire.client.get(), blob);
    wire.client.reset();
    HandshakeState state = HandshakeState::InProgress;
    for (int k = 0; k < 4 && state == HandshakeState::InProgress; ++k) {
      state = server.step(wire.server.get());
    }
    ASSERT_EQ(state, HandshakeState::Failed) << "blob " << i;
    const std::size_t unread = read_all(wire.server.get()).size();
    EXPECT_LE(blob.size() - unread, 256U);
  }
}

TEST_F(HandshakeTest, EveryFlippedBitIsFound) {
  for (std::size_t bit = 0; bit < 8 * (kHelloBytes + kProofBytes); ++bit) {
    SocketPair wire, target;
    ClientHandshake client(client_identity_, 5);
    ServerHandshake server(server_identity_);
    const auto flip = [](Bytes bytes, std::size_t at) {
      bytes[at / 8] ^= static_cast<std::byte>(1U << (at % 8));
      return bytes;
    };
    ASSERT_EQ(client.step(wire.client.get()), HandshakeState::InProgress);
    Bytes hello = read_all(wire.server.get());
    if (bit < 8 * kHelloBytes) hello = flip(hello, bit);
    write_all(target.client.get(), hello);
    HandshakeState state = server.step(target.server.get());
    if (bit < 8 * kHelloBytes) {
      ASSERT_EQ(state, HandshakeState::Failed) << "bit " << bit;
      continue;
    }
    ASSERT_EQ(state, HandshakeState::InProgress);
    write_all(wire.server.get(), read_all(target.client.get()));
    ASSERT_EQ(client.step(wire.client.get()), HandshakeState::Done);
    write_all(target.client.get(), flip(read_all(wire.server.get()), bit - 8 * kHelloBytes));
    ASSERT_EQ(server.step(target.server.get()), HandshakeState::Failed) << "bit " << bit;
  }
}

TEST_F(HandshakeTest, AReplayedConversationProvesNothing) {
  make();
  SocketPair client_wire, server_wire;
  ASSERT_EQ(client_->step(client_wire.client.get()), HandshakeState::InProgress);
  const Bytes hello = read_all(client_wire.server.get());
  write_all(server_wire.client.get(), hello);
  ASSERT_EQ(server_->step(server_wire.server.get()), HandshakeState::InProgress);
  const Bytes challenge = read_all(server_wire.client.get());
  write_all(client_wire.server.get(), challenge);
  ASSERT_EQ(client_->step(client_wire.client.get()), HandshakeState::Done);
  const Bytes proof = read_all(client_wire.server.get());

  ServerHandshake again(server_identity_);
  write_all(sockets_.client.get(), hello);
  EXPECT_EQ(again.step(sockets_.server.get()), HandshakeState::InProgress);
  write_all(sockets_.client.get(), proof);
  EXPECT_EQ(again.step(sockets_.server.get()), HandshakeState::Failed);

  // Nor does an answer of the server, recorded earlier, fool a client.
  SocketPair fresh;
  ClientHandshake client(client_identity_, 5);
  EXPECT_EQ(client.step(fresh.client.get()), HandshakeState::InProgress);
  write_all(fresh.server.get(), challenge);
  EXPECT_EQ(client.step(fresh.client.get()), HandshakeState::Failed);
  EXPECT_NE(client.failure_text().find("did not prove"), std::string::npos);
}

TEST_F(HandshakeTest, AClientThatMeetsItselfFails) {
  make();
  ASSERT_EQ(client_->step(sockets_.client.get()), HandshakeState::InProgress);
  write_all(sockets_.server.get(), read_all(sockets_.server.get()));
  EXPECT_EQ(client_->step(sockets_.client.get()), HandshakeState::Failed);
}

}  // namespace
}  // namespace allrail::transport
