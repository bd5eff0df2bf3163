// Two ranks over verbs rails on software devices lose every rail for good: what the error says.
//
// The fabrics have a clock of the test's own, so that the limit passes when the test is ready for
// it; the rails retry on the real one.
#include <array>
#include <chrono>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "tests/fake_verbs/fake_verbs.hpp"
#include "tests/fake_verbs/rail_options.hpp"
#include "transport/fabric_state.hpp"

namespace allrail::transport {
namespace {

using fake_verbs::Ways;

constexpr std::size_t kBytes = 20'000;
constexpr int kAttempts = 2;

/// Counts what rails report of links that are down.
class Watched final : public FabricState {
 public:
  using FabricState::FabricState;
  void link_down(int rail, int peer, std::string_view reason) override {
    const bool was_up = this->peer(peer).links[static_cast<std::size_t>(rail)].up;
    if (!was_up) ++attempts[static_cast<std::size_t>(rail)];
    FabricState::link_down(rail, peer, reason);
  }
  std::array<int, 2> attempts{};  // to connect, that failed
};

struct Rank {
  std::vector<std::byte> memory = std::vector<std::byte>(kBytes);
  PeerRails rails;
  std::unique_ptr<Watched> fabric;
};

class VerbsLastRail : public testing::TestWithParam<Ways> {
 protected:
  void SetUp() override {
    fake_verbs::reset(5);
    const JobSecret secret = JobSecret::random();
    for (int rank = 0; rank < 2; ++rank) {
      Rank& one = at(rank);
      std::vector<std::unique_ptr<Rail>> rails;
      for (int rail = 0; rail < 2; ++rail) {
        VerbsRailOptions options = fake_verbs::rail_options(rail, GetParam());
        options.index = rail;
        options.rank = rank;
        options.size = 2;
        options.secret = secret;
        options.overdue_ns = overdue_ns_;
        rails.push_back(make_verbs_rail(options));
        rails.back()->set_primary_window(one.memory);
        one.rails.rails.push_back({options.name, rails.back()->address()});
      }
      one.rails.host = "host-" + std::to_string(rank);
      one.rails.pairs = {{0, 0}, {1, 1}};
      FabricOptions options;
      options.host = one.rails.host;
      options.now_ns = [this] { return now_ns_; };
      one.fabric = std::make_unique<Watched>(rank, 2, std::move(rails), options);
    }
    for (int rank = 0; rank < 2; ++rank) at(rank).fabric->connect(1 - rank, at(1 - rank).rails);
  }

  void TearDown() override {
    for (Rank& rank : ranks_) {
      rank.fabric->shut_down();
      rank.fabric.reset();
    }
    EXPECT_EQ(fake_verbs::live().text(), "nothing");
  }

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  Watched& sender() { return *at(0).fabric; }

  template <class Done>
  void until(const char* what, Done done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << what;
      for (Rank& rank : ranks_) rank.fabric->progress();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  bool all_up() {
    for (int rank = 0; rank < 2; ++rank) {
      for (const Link& link : at(rank).fabric->peer(1 - rank).links) {
        if (!link.up) return false;
      }
    }
    return true;
  }

  std::int64_t overdue_ns_ = 0;
  std::int64_t now_ns_ = 1'000'000'000;
  std::array<Rank, 2> ranks_;
};

TEST_P(VerbsLastRail, SaysWhyEachWasLostAndWhatTheLastAttemptSaid) {
  until("two links", [this] { return all_up(); });
  for (const char* device : {"fake0", "fake1"}) fake_verbs::blackhole(device);
  for (int rail = 0; rail < 2; ++rail) {
    Put put;
    put.peer = 1;
    put.from = at(0).memory.data();
    put.bytes = kBytes;
    put.only_rail = rail;
    sender().put(put);
  }
  until("attempts to connect again",
        [this] { return sender().attempts[0] >= kAttempts && sender().attempts[1] >= kAttempts; });
  EXPECT_FALSE(sender().failure_) << sender().failure_->text;
  // Time goes on in steps: a peer counts as lost from when it is first seen without link.
  until("the end", [this] {
    now_ns_ += 100'000'000;
    return sender().failure_.has_value();
  });
  ASSERT_TRUE(sender().failure_.has_value());
  const FabricFailure failure = *sender().failure_;
  EXPECT_EQ(failure.peer, 1);
  EXPECT_FALSE(failure.mismatch);
  for (const std::string rail : {"fake0:1", "fake1:1"}) {
    // The completion came first; what is tried afterwards does not hide it.
    const std::string words = rail + " to " + rail +
                              ": a write failed: transport retry counter exceeded (status 12), "
                              "and since: cannot connect";
    EXPECT_NE(failure.text.find(words), std::string::npos) << failure.text;
  }
  for (const char* words : {"rank 0 on host host-0", "rank 1 on host host-1", "check the network"})
    EXPECT_NE(failure.text.find(words), std::string::npos) << failure.text;
}

/// Whose queue pairs are found to stand still soon.
class VerbsRailsThatStandStill : public VerbsLastRail {
 protected:
  VerbsRailsThatStandStill() { overdue_ns_ = 200'000'000; }
};

// librdmacm connects them again, and they stand still as before.
TEST_P(VerbsRailsThatStandStill, AreGivenUpThoughTheyComeUpAgain) {
  until("two links", [this] { return all_up(); });
  for (const char* device : {"fake0", "fake1"}) fake_verbs::freeze(device);
  Put put;
  put.peer = 1;
  put.from = at(0).memory.data();
  put.bytes = kBytes;
  sender().put(put);
  // Time goes on only while there are links: that there is none for long is another error.
  until("the end", [this] {
    if (all_up()) now_ns_ += 10'000'000;
    return sender().failure_.has_value();
  });
  ASSERT_TRUE(sender().failure_.has_value());
  const FabricFailure failure = *sender().failure_;
  EXPECT_EQ(failure.peer, 1);
  for (const char* words :
       {"rank 0 on host host-0 has lost ", " rails in a row to rank 1 on host host-1 in ",
        "none delivered anything", "has completed nothing for 200 ms", "check the network"})
    EXPECT_NE(failure.text.find(words), std::string::npos) << failure.text;
}

INSTANTIATE_TEST_SUITE_P(ByManager, VerbsRailsThatStandStill, testing::Values(Ways::Manager),
                         [](const auto& one) { return ways_text(one.param); });

INSTANTIATE_TEST_SUITE_P(EachWay, VerbsLastRail,
                         testing::Values(Ways::Manager, Ways::Direct, Ways::Both),
                         [](const auto& one) { return ways_text(one.param); });

}  // namespace
}  // namespace allrail::transport
