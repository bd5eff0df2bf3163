// Several nodes in one process.
#include "transport/control/control_plane.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <set>

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "include/allrail/error.hpp"
#include "lib/base/clock.hpp"
#include "tests/unit/control/fake_node.hpp"

namespace allrail::transport {
namespace {

using namespace std::chrono_literals;

class ControlPlaneTest : public testing::Test {
 protected:
  void start(int node_count, std::vector<std::string> items = {"127.0.0.1"},
             std::vector<pid_t> pids_of_node_zero = {}) {
    std::vector<ControlPeer> peers;
    for (int node = 0; node < node_count; ++node) {
      nodes_.push_back(std::make_unique<FakeNode>(node, node_count, 2, items));
      peers.push_back(nodes_.back()->listen());
    }
    for (int node = 0; node < node_count; ++node) {
      nodes_[static_cast<std::size_t>(node)]->start(
          peers, node == 0 ? pids_of_node_zero : std::vector<pid_t>{});
    }
    peers_ = peers;
    ASSERT_TRUE(within(5s, [&] { return linked(); }));
  }
  bool linked() const {
    return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
      return node->plane->links_up() ==
             static_cast<int>(
                 control_neighbours(node->options.node, node->options.node_count).size());
    });
  }
  bool all_aborted() const {
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [](const auto& node) { return node->aborted(); });
  }
  bool any_aborted() const {
    return std::any_of(nodes_.begin(), nodes_.end(),
                       [](const auto& node) { return node->aborted(); });
  }
  void TearDown() override {
    for (const auto& node : nodes_) node->say_goodbye();
    nodes_.clear();
  }
  FakeNode& node(int index) { return *nodes_[static_cast<std::size_t>(index)]; }

  std::vector<std::unique_ptr<FakeNode>> nodes_;
  std::vector<ControlPeer> peers_;
};

TEST(ControlNeighboursTest, are_symmetric_few_and_connect_everybody) {
  for (int count = 1; count <= 70; ++count) {
    std::set<int> reached{0};
    std::vector<int> border{0};
    while (!border.empty()) {
      const int node = border.back();
      border.pop_back();
      for (const int next : control_neighbours(node, count)) {
        if (reached.insert(next).second) border.push_back(next);
      }
    }
    EXPECT_EQ(static_cast<int>(reached.size()), count);
    for (int node = 0; node < count; ++node) {
      const std::vector<int> neighbours = control_neighbours(node, count);
      EXPECT_LE(neighbours.size(), 14U);
      for (const int other : neighbours) {
        EXPECT_NE(other, node);
        const std::vector<int> back = control_neighbours(other, count);
        EXPECT_TRUE(std::find(back.begin(), back.end(), node) != back.end());
      }
    }
  }
}

TEST_F(ControlPlaneTest, one_node_needs_no_links) {
  start(1);
  node(0).segment().set_abort(1, 0, "alone");
  EXPECT_TRUE(node(0).aborted());
}

class ControlFloodTest : public ControlPlaneTest, public testing::WithParamInterface<int> {};

TEST_P(ControlFloodTest, the_first_cause_reaches_every_node) {
  start(GetParam());
  EXPECT_FALSE(any_aborted());
  node(GetParam() / 2)
      .segment()
      .set_abort(static_cast<int>(Code::Network), 7, "no rail to rank 7 is left");
  ASSERT_TRUE(within(1s, [&] { return all_aborted(); }));
  for (const auto& each : nodes_) {
    EXPECT_EQ(each->cause(), "no rail to rank 7 is left");
    EXPECT_EQ(each->segment().abort_record().peer, 7);
    EXPECT_EQ(each->segment().abort_record().code, static_cast<int>(Code::Network));
  }
}
INSTANTIATE_TEST_SUITE_P(Nodes, ControlFloodTest, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9));

TEST_F(ControlPlaneTest, a_kick_makes_it_quick) {
  start(2);
  node(0).segment().set_abort(1, 0, "now");
  const std::int64_t started_ns = base::now_ns();
  node(0).plane->kick();
  ASSERT_TRUE(within(1s, [&] { return node(1).aborted(); }));
  EXPECT_LT(base::now_ns() - started_ns, 200'000'000);
}

TEST_F(ControlPlaneTest, goodbye_is_no_loss) {
  start(4);
  for (int leaving = 0; leaving < 3; ++leaving) {
    node(leaving).say_goodbye();
    const std::int64_t started_ns = base::now_ns();
    node(leaving).plane.reset();
    EXPECT_LT(base::now_ns() - started_ns, 900'000'000);
  }
  std::this_thread::sleep_for(500ms);
  EXPECT_FALSE(any_aborted());
}

TEST_F(ControlPlaneTest, leaving_waits_for_local_ranks_but_not_for_ever) {
  start(2);
  node(1).segment().line(0).state.store(shm::RankState::Goodbye);  // the other rank never says it
  const std::int64_t started_ns = base::now_ns();
  node(1).plane.reset();
  EXPECT_LT(base::now_ns() - started_ns, 1'200'000'000);
  std::this_thread::sleep_for(300ms);
  EXPECT_FALSE(node(0).aborted());
}

/// One node of two leaves while the other listens and does nothing, as one that is stopped.
class ControlLeaveTest : public testing::TestWithParam<int> {
 protected:
  ControlLeaveTest() {
    for (int number = 0; number < 2; ++number) {
      nodes_.push_back(std::make_unique<FakeNode>(number, 2));
      peers_.push_back(nodes_.back()->listen());
    }
  }
  FakeNode& leaver() { return *nodes_[static_cast<std::size_t>(GetParam())]; }
  std::unique_ptr<FakeNode>& other() { return nodes_[static_cast<std::size_t>(1 - GetParam())]; }
  /// For how long, in ms.
  std::int64_t leave() {
    leaver().say_goodbye();
    const std::int64_t started_ns = base::now_ns();
    leaver().plane.reset();
    return (base::now_ns() - started_ns) / 1'000'000;
  }

  std::vector<std::unique_ptr<FakeNode>> nodes_;
  std::vector<ControlPeer> peers_;
};

TEST_P(ControlLeaveTest, waits_for_one_that_goes_on_later) {
  leaver().start(peers_);
  std::thread late([this] {
    std::this_thread::sleep_for(2500ms);
    other()->start(peers_);
  });
  EXPECT_GE(leave(), 2000);
  late.join();
  std::this_thread::sleep_for(500ms);
  EXPECT_FALSE(other()->aborted()) << other()->cause();
}

TEST_P(ControlLeaveTest, does_not_wait_for_one_that_is_gone) {
  other().reset();
  leaver().start(peers_);
  EXPECT_LT(leave(), 4000);
}

TEST_P(ControlLeaveTest, waits_not_for_ever) {
  leaver().options.unheard_ms = 1500;
  leaver().start(peers_);
  EXPECT_GE(leave(), 1400);
}
INSTANTIATE_TEST_SUITE_P(Nodes, ControlLeaveTest, testing::Values(0, 1));

TEST_F(ControlPlaneTest, the_death_of_a_local_process_is_named_everywhere) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  start(5, {"127.0.0.1"}, {0, child});
  EXPECT_FALSE(any_aborted());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(within(1s, [&] { return all_aborted(); }));
  const std::string expected = "rank 1 (process " + std::to_string(child) + ") on node 0 died";
  for (const auto& each : nodes_) {
    EXPECT_EQ(each->cause(), expected);
    EXPECT_EQ(each->segment().abort_record().code, static_cast<int>(Code::PeerLost));
    EXPECT_EQ(each->segment().abort_record().peer, 1);
  }
}

TEST_F(ControlPlaneTest, a_local_process_that_said_goodbye_may_end) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  start(2, {"127.0.0.1"}, {0, child});
  node(0).segment().line(1).state.store(shm::RankState::Goodbye);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  std::this_thread::sleep_for(400ms);
  EXPECT_FALSE(any_aborted());
}

/// The established TCP connections of this process.
std::vector<int> links() {
  std::vector<int> found;
  DIR* directory = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(directory)) {
    const int fd = std::atoi(entry->d_name);
    if (fd > 2 && remote_endpoint(fd)) found.push_back(fd);
  }
  ::closedir(directory);
  return found;
}

/// Shuts down all of them, as if the network had reset them.
int cut_all_links() {
  int cut = 0;
  for (const int fd : links()) {
    if (::shutdown(fd, SHUT_RDWR) == 0) ++cut;
  }
  return cut;
}

TEST_F(ControlPlaneTest, cut_links_come_back) {
  start(4, {"127.0.0.1", "127.0.0.2"});
  for (int round = 0; round < 3; ++round) {
    // A busy machine may not have noticed yet that the last cut took these links: some of those
    // that are counted end before they are shut down, and the next try meets the new ones.
    ASSERT_TRUE(within(5s, [] { return links().size() >= 8 && cut_all_links() >= 8; }))
        << "round " << round;
    std::this_thread::sleep_for(100ms);
    ASSERT_TRUE(within(5s, [&] { return linked(); })) << "round " << round;
  }
  std::this_thread::sleep_for(400ms);
  EXPECT_FALSE(any_aborted());
  node(3).segment().set_abort(1, 0, "still connected");
  EXPECT_TRUE(within(1s, [&] { return all_aborted(); }));
}

TEST_F(ControlPlaneTest, different_calls_on_different_nodes_are_named) {
  start(3);
  shm::enter_call(node(0).segment().line(1), 12, 0xaaaa, 1);  // rank 1
  shm::enter_call(node(2).segment().line(0), 12, 0xbbbb, 1);  // rank 4
  ASSERT_TRUE(within(1s, [&] { return all_aborted(); }));
  for (const auto& each : nodes_) {
    EXPECT_EQ(each->segment().abort_record().code, static_cast<int>(Code::Mismatch));
    EXPECT_NE(each->cause().find("rank 1 and rank 4 made different calls as number 12"),
              std::string::npos)
        << each->cause();
  }
}

TEST_F(ControlPlaneTest, different_calls_on_one_node_are_named) {
  start(2);
  shm::enter_call(node(1).segment().line(0), 3, 1, 1);
  shm::enter_call(node(1).segment().line(1), 3, 2, 1);
  ASSERT_TRUE(within(1s, [&] { return all_aborted(); }));
  EXPECT_NE(node(0).cause().find("rank 2 and rank 3"), std::string::npos) << node(0).cause();
}

TEST_F(ControlPlaneTest, equal_calls_and_slow_ranks_are_fine) {
  start(3);
  for (int index = 0; index < 3; ++index) shm::enter_call(node(index).segment().line(0), 12, 7, 1);
  shm::enter_call(node(1).segment().line(1), 11, 6, 1);
  std::this_thread::sleep_for(900ms);
  EXPECT_FALSE(any_aborted());
}

TEST_F(ControlPlaneTest, every_node_learns_who_is_late) {
  start(8);
  const std::int64_t now_ns = base::now_ns();
  for (int at = 0; at < 8; ++at) {
    for (int local = 0; local < 2; ++local) {
      shm::enter_call(node(at).segment().line(local), 9, 77, now_ns);
    }
  }
  shm::RankLine& late = node(5).segment().line(1);
  shm::enter_call(late, 8, 70, now_ns);
  shm::leave_call(late);
  EXPECT_TRUE(within(5s, [&] {
    return std::ranges::all_of(nodes_,
                               [](const auto& one) { return one->segment().late_rank() == 11; });
  }));
  shm::enter_call(late, 9, 77, now_ns);
  EXPECT_TRUE(within(10s, [&] {
    return std::ranges::all_of(nodes_,
                               [](const auto& one) { return one->segment().late_rank() == -1; });
  }));
  EXPECT_FALSE(any_aborted());
}

TEST_F(ControlPlaneTest, strangers_are_no_trouble) {
  start(2);
  const auto target = decode_endpoint(std::span(peers_[1].address).first(kEndpointBytes));
  ASSERT_TRUE(target.has_value());
  std::vector<base::UniqueFd> strangers;
  for (int count = 0; count < 100; ++count) {
    int error_number = 0;
    strangers.push_back(start_connect(*parse_address("127.0.0.1"), *target, "", error_number));
    ASSERT_TRUE(within(1s, [&] {
      const std::string garbage(300, static_cast<char>(count));
      return ::send(strangers.back().get(), garbage.data(), garbage.size(), MSG_NOSIGNAL) > 0;
    }));
  }
  std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(any_aborted());
  EXPECT_TRUE(linked());
  node(0).segment().set_abort(1, 0, "works");
  EXPECT_TRUE(within(1s, [&] { return all_aborted(); }));
}

TEST_F(ControlPlaneTest, another_secret_is_not_admitted) {
  FakeNode first(0, 2), second(1, 2);
  second.options.secret = JobSecret::random();
  const std::vector<ControlPeer> peers{first.listen(), second.listen()};
  first.start(peers);
  second.start(peers);
  std::this_thread::sleep_for(500ms);
  EXPECT_EQ(first.plane->links_up(), 0);
  EXPECT_EQ(second.plane->links_up(), 0);
}

TEST_F(ControlPlaneTest, an_address_that_is_none_is_an_error) {
  FakeNode first(0, 2);
  std::vector<ControlPeer> peers{first.listen(), {2, std::vector<std::byte>(7)}};
  EXPECT_THROW(first.start(peers), Error);
}

}  // namespace
}  // namespace allrail::transport
