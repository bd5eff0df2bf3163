// Two nodes in two processes: what is seen of a process that is killed or stopped.
#include <csignal>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "include/allrail/error.hpp"
#include "tests/unit/control/fake_node.hpp"

namespace allrail::transport {
namespace {

using namespace std::chrono_literals;

class ControlProcessTest : public testing::TestWithParam<int> {
 protected:
  /// The child runs the other node until it is ended.
  void start(int my_node) {
    mine_ = std::make_unique<FakeNode>(my_node, 2, 1,
                                       std::vector<std::string>{"127.0.0.1", "127.0.0.2"});
    other_ = std::make_unique<FakeNode>(1 - my_node, 2, 1,
                                        std::vector<std::string>{"127.0.0.1", "127.0.0.2"});
    std::vector<ControlPeer> peers(2);
    peers[static_cast<std::size_t>(my_node)] = mine_->listen();
    peers[static_cast<std::size_t>(1 - my_node)] = other_->listen();
    child_ = ::fork();
    if (child_ == 0) {
      mine_.reset();
      other_->start(peers);
      for (;;) ::pause();
    }
    other_.reset();  // the parent's copies of the child's listening sockets
    mine_->start(peers);
    ASSERT_TRUE(within(5s, [&] { return mine_->plane->links_up() == 1; }));
  }
  void TearDown() override {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  std::unique_ptr<FakeNode> mine_, other_;
  pid_t child_ = -1;
};

TEST_P(ControlProcessTest, a_killed_process_is_named_within_a_second) {
  start(GetParam());
  ::kill(child_, SIGKILL);
  ASSERT_TRUE(within(1s, [&] { return mine_->aborted(); }));
  const int other = 1 - GetParam();
  EXPECT_EQ(mine_->segment().abort_record().peer, other);
  EXPECT_EQ(mine_->segment().abort_record().code, static_cast<int>(Code::PeerLost));
  EXPECT_NE(mine_->cause().find("rank " + std::to_string(other) + ", the first of node " +
                                std::to_string(other)),
            std::string::npos)
      << mine_->cause();
}

TEST_P(ControlProcessTest, a_stopped_process_is_waited_for) {
  start(GetParam());
  ::kill(child_, SIGSTOP);
  shm::enter_call(mine_->segment().line(0), 5, 1, 1);  // makes heartbeats flow
  std::this_thread::sleep_for(4500ms);
  EXPECT_FALSE(mine_->aborted());
  ::kill(child_, SIGCONT);
  std::this_thread::sleep_for(300ms);
  EXPECT_FALSE(mine_->aborted());
  EXPECT_EQ(mine_->plane->links_up(), 1);
}

INSTANTIATE_TEST_SUITE_P(BothSides, ControlProcessTest, testing::Values(0, 1));

}  // namespace
}  // namespace allrail::transport
