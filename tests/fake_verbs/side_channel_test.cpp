// The side channel of direct links against those who should not use it, and peers that stop in the
// middle. Sockets are real, devices are not.
#include <array>
#include <cerrno>
#include <chrono>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "tests/fake_verbs/fake_verbs.hpp"
#include "tests/fake_verbs/rail_options.hpp"
#include "transport/tcp/handshake.hpp"
#include "transport/tcp/socket.hpp"
#include "transport/verbs/offer.hpp"
#include "transport/verbs/rail_address.hpp"
#include "transport/verbs/verbs_rail.hpp"

namespace allrail::transport {
namespace {

using fake_verbs::Ways;
using verbs::RailAddress;

constexpr std::size_t kWindowBytes = 4096;
constexpr int kRank = 1;  // of the rail that is asked, so rank 0 connects

struct Counts : RailEvents {
  int ups = 0, downs = 0, answers = 0;
  int peer_rail = -1;
  std::string reason;
  void link_up(int, int, int rail) override {
    ++ups;
    peer_rail = rail;
  }
  void link_answered(int, int) override { ++answers; }
  void link_down(int, int, std::string_view text) override {
    ++downs;
    reason = text;
  }
  bool chunk_wanted(int, int, std::uint32_t) override { return true; }
  void chunk_arrived(int, int, std::uint32_t, std::uint32_t) override {}
  void chunks_completed(int, int, int) override {}
  void control_arrived(int, int, std::span<const std::byte>) override {}
};

/// Proves that it is rank 0, then does what a test wants.
class MadeUpPeer {
 public:
  MadeUpPeer(const Endpoint& to, const JobSecret& secret)
      : secret_(secret), handshake_({secret, 0, 0, 2, 0, Purpose::SideChannel}, kRank) {
    int error_number = 0;
    fd_ = start_connect(*parse_address("127.0.0.1"), to, {}, error_number);
    EXPECT_TRUE(fd_) << error_number;
  }
  HandshakeState step() {
    pollfd writable{fd_.get(), POLLOUT, 0};
    return ::poll(&writable, 1, 0) == 1 ? handshake_.step(fd_.get()) : HandshakeState::InProgress;
  }
  /// An offer that rank 0 could have made, but for `change`.
  template <typename Change>
  void send_offer(std::size_t bytes, Change change) {
    verbs::Offer offer;
    offer.hello.rank = 0;
    offer.path.qp_number = 99;
    offer.path.mtu_code = 3;
    offer.path.is_ethernet = true;
    change(offer);
    const auto message = encode(offer, {secret_, 0, kRank, 0}, {});
    EXPECT_EQ(::send(fd_.get(), message.data(), bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  /// The rail has closed the connection.
  bool is_closed() const {
    std::byte byte{};
    return ::recv(fd_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0 || errno == ECONNRESET;
  }
  /// The rail has answered with an offer of its own.
  bool is_answered() const {
    std::byte byte{};
    return ::recv(fd_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
  }
  void close() { fd_.reset(); }

 private:
  JobSecret secret_;
  ClientHandshake handshake_;
  base::UniqueFd fd_;
};

class SideChannels : public testing::Test {
 protected:
  SideChannels() {
    fake_verbs::reset(5);
    asked_ = make(kRank);
    connecting_ = make(0);
    asked_->connect(0, connecting_->address());
  }
  void TearDown() override {
    connecting_.reset();
    asked_.reset();
    EXPECT_EQ(fake_verbs::live().text(), "nothing");
  }
  std::unique_ptr<Rail> make(int rank, int index = 0) {
    auto options = fake_verbs::rail_options(rank, Ways::Direct);
    options.index = index;
    options.rank = rank;
    options.size = 2;
    options.secret = secret_;
    auto rail = make_verbs_rail(options);
    rail->set_primary_window(windows_[static_cast<std::size_t>(rank)]);
    return rail;
  }
  template <typename Done>
  bool until(Done done) {
    return fake_verbs::look_until(done, [this] {
      asked_->poll(at_asked_);
      connecting_->poll(at_connecting_);
    });
  }
  Endpoint endpoint() { return verbs::decode_rail_address(asked_->address())->side_channel.at(0); }
  /// Whatever came before, the real rank 0 gets its link.
  void expect_real_link(const std::vector<std::byte>& address) {
    connecting_->connect(kRank, address);
    EXPECT_TRUE(until([&] { return asked_->is_up(0) && connecting_->is_up(kRank); }))
        << at_asked_.reason << "; " << at_connecting_.reason;
  }

  JobSecret secret_ = JobSecret::random();
  std::array<std::vector<std::byte>, 2> windows_ = {std::vector<std::byte>(kWindowBytes),
                                                    std::vector<std::byte>(kWindowBytes)};
  std::unique_ptr<Rail> asked_;
  std::unique_ptr<Rail> connecting_;
  Counts at_asked_;
  Counts at_connecting_;
};

TEST_F(SideChannels, WhoDoesNotKnowTheSecretGetsNothing) {
  MadeUpPeer stranger(endpoint(), JobSecret::random());
  EXPECT_TRUE(until([&] { return stranger.step() == HandshakeState::Failed; }));
  EXPECT_EQ(at_asked_.ups + at_asked_.downs, 0);
  EXPECT_EQ(fake_verbs::live().queue_pairs, 0);
  expect_real_link(asked_->address());
}

TEST_F(SideChannels, OffersThatAreNotRightAreRefused) {
  for (int wrong = 0; wrong < 4; ++wrong) {
    MadeUpPeer peer(endpoint(), secret_);
    ASSERT_TRUE(until([&] { return peer.step() == HandshakeState::Done; }));
    peer.send_offer(verbs::kOfferBytes, [&](verbs::Offer& offer) {
      if (wrong == 0) offer.hello.rank = 5;
      if (wrong == 1) offer.path.qp_number = 0;
      if (wrong == 2) offer.path.mtu_code = 9;
      if (wrong == 3) offer.hello.rail = kMaxRails;
    });
    EXPECT_TRUE(until([&] { return peer.is_closed(); })) << wrong;
  }
  EXPECT_EQ(fake_verbs::live().queue_pairs, 0);
  expect_real_link(asked_->address());
}

TEST_F(SideChannels, AnotherKindOfNetworkIsRefused) {
  MadeUpPeer peer(endpoint(), secret_);
  ASSERT_TRUE(until([&] { return peer.step() == HandshakeState::Done; }));
  peer.send_offer(verbs::kOfferBytes, [](verbs::Offer& offer) { offer.path.is_ethernet = false; });
  EXPECT_TRUE(until([&] { return peer.is_closed(); }));
  EXPECT_NE(at_asked_.reason.find("Network is unreachable"), std::string::npos) << at_asked_.reason;
  expect_real_link(asked_->address());
}

TEST_F(SideChannels, PeersMayStopAnywhere) {
  // In its offer, after its offer, and after the answer to it.
  for (int stop = 0; stop < 3; ++stop) {
    MadeUpPeer peer(endpoint(), secret_);
    ASSERT_TRUE(until([&] { return peer.step() == HandshakeState::Done; }));
    peer.send_offer(stop == 0 ? 20 : verbs::kOfferBytes, [](verbs::Offer&) {});
    if (stop == 2) {
      ASSERT_TRUE(until([&] { return peer.is_answered(); }));
    }
    peer.close();
    EXPECT_TRUE(until([&] { return fake_verbs::live().queue_pairs == 0; })) << stop;
  }
  EXPECT_EQ(at_asked_.ups, 0);
  expect_real_link(asked_->address());
}

TEST_F(SideChannels, ANewConnectionTakesTheOldOnesPlace) {
  MadeUpPeer peer(endpoint(), secret_);
  ASSERT_TRUE(until([&] { return peer.step() == HandshakeState::Done; }));
  peer.send_offer(verbs::kOfferBytes, [](verbs::Offer&) {});
  ASSERT_TRUE(until([&] { return peer.is_answered(); }));
  expect_real_link(asked_->address());
  EXPECT_TRUE(until([&] { return fake_verbs::live().queue_pairs == 2; }));
}

TEST_F(SideChannels, AnAddressThatLeadsNowhereDoesNotHoldUpTheOthers) {
  RailAddress address = *verbs::decode_rail_address(asked_->address());
  Endpoint nowhere = *parse_address("127.0.0.1");
  nowhere.port = 1;
  address.side_channel.insert(address.side_channel.begin(), nowhere);
  expect_real_link(encode(address));
  EXPECT_EQ(at_connecting_.downs, 1);
  EXPECT_NE(at_connecting_.reason.find("127.0.0.1:1: Connection refused"), std::string::npos)
      << at_connecting_.reason;
}

TEST_F(SideChannels, APeerThatIsNotReadyAnswersAndIsWaitedFor) {
  asked_ = make(kRank, 2);
  connecting_ = make(0, 3);
  connecting_->connect(kRank, asked_->address());
  EXPECT_TRUE(until([&] { return at_connecting_.answers == 1; }));
  int polls = 0;
  EXPECT_TRUE(until([&] { return ++polls > 1000; }));
  EXPECT_EQ(at_connecting_.ups + at_connecting_.downs + at_asked_.ups, 0);
  asked_->connect(0, connecting_->address());
  expect_real_link(asked_->address());
  EXPECT_EQ(at_connecting_.answers, 1) << "another attempt was made";
  EXPECT_EQ(at_connecting_.downs, 0);
  EXPECT_EQ(at_connecting_.peer_rail, 2);
  EXPECT_EQ(at_asked_.peer_rail, 3);
}

TEST_F(SideChannels, AnAttemptEndsWhereAnotherRailIsToBeTried) {
  asked_ = make(kRank);
  connecting_ = make(0, 1);
  connecting_->connect(kRank, asked_->address());
  ASSERT_TRUE(until([&] { return fake_verbs::live().queue_pairs == 1; }));
  const std::unique_ptr<Rail> first = std::move(asked_);
  asked_ = make(kRank, 2);
  asked_->connect(0, connecting_->address());
  connecting_->connect(kRank, asked_->address());
  EXPECT_EQ(fake_verbs::live().queue_pairs, 0);
  expect_real_link(asked_->address());
  EXPECT_EQ(at_connecting_.peer_rail, 2);
  EXPECT_EQ(at_asked_.peer_rail, 1);
  // The offer that it was made is no longer worth anything.
  Counts at_first;
  first->connect(0, connecting_->address());
  for (int i = 0; i < 1000; ++i) first->poll(at_first);
  EXPECT_EQ(at_first.ups, 0);
  EXPECT_EQ(fake_verbs::live().queue_pairs, 2);
}

TEST_F(SideChannels, TheEndOfAProcessEndsItsLink) {
  expect_real_link(asked_->address());
  connecting_ = make(0);
  EXPECT_TRUE(until([&] { return at_asked_.downs == 1; }));
  EXPECT_NE(at_asked_.reason.find("the peer closed the connection"), std::string::npos)
      << at_asked_.reason;
}

}  // namespace
}  // namespace allrail::transport
