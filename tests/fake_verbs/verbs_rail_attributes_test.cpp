// What the verbs rail asks of its queue pairs and pins for its links, and that a link that comes
// back starts anew.
#include <array>

#include <gtest/gtest.h>

#include "include/allrail/error.hpp"
#include "tests/fake_verbs/linked_rails.hpp"

namespace allrail::transport {
namespace {

using fake_verbs::DeviceOptions;
using fake_verbs::Ways;

/// Since reset().
int registrations() {
  int count = 0;
  for (int n = 1; n <= fake_verbs::calls(); ++n) {
    count += fake_verbs::name_of_call(n) == "ibv_reg_mr" ? 1 : 0;
  }
  return count;
}

TEST_P(VerbsRailLinks, AskForTheRetriesThatTheirDocumentsPromise) {
  for (const bool has_siblings : {true, false}) {
    make(fake_verbs::default_devices(), has_siblings);
    ASSERT_TRUE(until([&] { return both_up(); }));
    const std::vector<ibv_qp_attr> pairs = fake_verbs::queue_pairs();
    ASSERT_EQ(pairs.size(), 2U);
    for (const ibv_qp_attr& pair : pairs) {
      EXPECT_EQ(pair.qp_state, IBV_QPS_RTS);
      EXPECT_EQ(pair.rnr_retry, 0)
          << "a receive that is missing is an error of ours, found at once";
      EXPECT_EQ(pair.retry_cnt, 6) << "7 is for ever on soft-RoCE";
      EXPECT_EQ(pair.timeout, has_siblings ? 14 : 18);
    }
    TearDown();
  }
}

/// With side addresses, and librdmacm or not.
class LinksWithSideAddresses : public VerbsRailLinks {};

TEST_P(LinksWithSideAddresses, TakeTheSmallerMtuOfBothPorts) {
  for (const std::size_t smaller : {0U, 1U}) {
    std::vector<DeviceOptions> devices = fake_verbs::default_devices();
    devices[1 - smaller].mtu = IBV_MTU_4096;
    devices[smaller].mtu = IBV_MTU_2048;
    make(devices);
    ASSERT_TRUE(until([&] { return both_up(); }));
    for (const ibv_qp_attr& pair : fake_verbs::queue_pairs()) {
      EXPECT_EQ(pair.path_mtu, IBV_MTU_2048);
    }
    ASSERT_TRUE(post());
    EXPECT_TRUE(until([&] { return counts_[1].arrived == 1; }));
    counts_ = {};
    TearDown();
  }
}

class LinksByLibrdmacmAlone : public VerbsRailLinks {};

TEST_P(LinksByLibrdmacmAlone, NeedOneMtu) {
  std::vector<DeviceOptions> devices = fake_verbs::default_devices();
  devices[1].mtu = IBV_MTU_4096;
  try {
    make(devices);
    ADD_FAILURE() << "they connect";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Mismatch);
    EXPECT_EQ(error.peer(), 1);
    for (const char* word : {"fake0:1", "1024", "4096", "rank 1", "ALLRAIL_CONNECT"})
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

// Every counter of a link counts one connection. What is in flight when one breaks is not taken
// into the next: after as many breaks as there are slots none would be left.
TEST_P(VerbsRailLinks, StartAnewWhenTheyComeBack) {
  make();
  for (int round = 1; round <= 20; ++round) {
    ASSERT_TRUE(until([&] { return both_up(); })) << round;
    const int depth = rails_[0]->queue_depth();
    for (int i = 0; i < depth; ++i) ASSERT_TRUE(post()) << round << ", chunk " << i;
    ASSERT_TRUE(post_message()) << round;
    // More receives than a credit word stands for: one is under way when the receiver closes.
    const int arrived = counts_[1].arrived;
    ASSERT_TRUE(until([&] { return counts_[1].arrived >= arrived + 41; })) << round;
    for (int i = 0; i < 15 && post(); ++i) continue;
    const std::size_t closing = round % 4 == 0 ? 0 : 1;
    rails_[closing]->close(static_cast<int>(1 - closing), counts_[closing]);
    const int downs = counts_[1 - closing].downs;
    ASSERT_TRUE(until([&] { return counts_[1 - closing].downs > downs; })) << round;
  }
  ASSERT_TRUE(until([&] { return both_up(); }));
  // More than all receives that are posted at once: only credit words let them all through.
  constexpr int kMany = 1000;
  const int arrived = counts_[1].arrived;
  const int completed = counts_[0].completed;
  int posted = 0;
  ASSERT_TRUE(until([&] {
    while (posted < kMany && post()) ++posted;
    return counts_[0].completed - completed == kMany;
  })) << posted;
  EXPECT_EQ(counts_[1].arrived - arrived, kMany);
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(post_message()) << i;
  EXPECT_FALSE(post_message()) << "there are sixteen buffers";
  const int messages = counts_[1].messages;
  ASSERT_TRUE(until([&] { return counts_[1].messages == messages + 16; }));
}

// The side channel is another network: that it works does not mean that the link does.
TEST_P(VerbsRailLinks, StayDownWhileNothingGetsThrough) {
  for (const bool port_knows : {true, false}) {
    make();
    ASSERT_TRUE(until([&] { return both_up(); }));
    port_knows ? fake_verbs::cut("fake1") : fake_verbs::blackhole("fake1");
    for (std::size_t rank = 0; rank < 2; ++rank) {
      rails_[rank]->close(static_cast<int>(1 - rank), counts_[rank]);
      counts_[rank] = {};
    }
    ASSERT_TRUE(until([&] { return counts_[0].downs == 3; })) << "each attempt is told";
    EXPECT_EQ(counts_[0].ups + counts_[1].ups, 0);
    fake_verbs::restore("fake1");
    ASSERT_TRUE(until([&] { return both_up(); }));
    TearDown();
  }
}

// Its side channel answers, and its rail does not: that must not look like a peer who is only late.
TEST_P(VerbsRailLinks, AnswerOnceWhereNothingEverGetsThrough) {
  make();
  fake_verbs::blackhole("fake1");
  ASSERT_TRUE(until([&] { return counts_[0].downs == 5; }));
  EXPECT_EQ(counts_[0].ups + counts_[1].ups, 0);
  EXPECT_LE(counts_[0].answers, 1);
  fake_verbs::restore("fake1");
  ASSERT_TRUE(until([&] { return both_up(); }));
}

// However late it is: other pairs would be tried instead, and kept.
TEST_P(VerbsRailLinks, AreAskedAnewWhereTheOtherEndIsLate) {
  connect_timeout_ns_ = 1'000'000'000;
  second_waits_ = std::chrono::milliseconds(2500);
  make(fake_verbs::default_devices(), true, true);
  EXPECT_GT(counts_[0].answers, 1);
  ASSERT_TRUE(until([&] { return both_up(); }));
  EXPECT_EQ(counts_[0].downs, 0) << counts_[0].first_reason;
}

// A connection manager that could not send a message is of no use any more on soft-RoCE: none may
// be sent while the port is down, by whichever end.
TEST_P(VerbsRailLinks, ComeBackAfterThePortWasDown) {
  std::vector<DeviceOptions> devices = fake_verbs::default_devices();
  for (DeviceOptions& device : devices) device.manager_breaks = true;
  make(devices);
  for (int round = 0; round < 6; ++round) {
    ASSERT_TRUE(until([&] { return both_up(); })) << round;
    const std::string device = "fake" + std::to_string(round % 2);
    fake_verbs::cut(device);
    const int downs = counts_[0].downs;
    // Noticed by the port alone, or by a fence, too; the other end has nothing in flight that
    // would tell it.
    if (round > 0) {
      for (std::size_t rank = 0; rank < 2; ++rank)
        rails_[rank]->close(static_cast<int>(1 - rank), counts_[rank]);
    }
    ASSERT_TRUE(until([&] { return counts_[0].downs >= downs + 2; })) << "it tries in vain";
    fake_verbs::restore(device);
  }
  EXPECT_TRUE(until([&] { return both_up(); }));
  // What was given up meanwhile is gone by now: two listeners, and what the links have.
  const int managed = GetParam() == Ways::Direct ? 0 : 2;
  EXPECT_EQ(fake_verbs::live().ids, 2 * managed);
}

// One that was left with nothing in flight but its end.
TEST_P(VerbsRailLinks, AreGivenBackWhileThePortIsDown) {
  make();
  ASSERT_TRUE(until([&] { return both_up(); }));
  fake_verbs::cut("fake0");
  ASSERT_TRUE(until([&] { return counts_[0].downs >= 2; }));
}

class LinksOfBothWays : public VerbsRailLinks {};

// librdmacm fails, the network does not. That the peer was there once, and was waited for, does not
// mean that its answer is waited for now.
TEST_P(LinksOfBothWays, ComeBackByTheOtherWay) {
  make(fake_verbs::default_devices(), true, true);
  ASSERT_TRUE(until([&] { return both_up(); }));
  EXPECT_EQ(fake_verbs::live().ids, 4) << "the first time by librdmacm";
  fake_verbs::break_manager("fake1");
  for (std::size_t rank = 0; rank < 2; ++rank)
    rails_[rank]->close(static_cast<int>(1 - rank), counts_[rank]);
  ASSERT_TRUE(until([&] { return both_up(); }));
  EXPECT_EQ(fake_verbs::live().ids, 2) << "only the listeners";
  ASSERT_TRUE(post());
  const int arrived = counts_[1].arrived;
  EXPECT_TRUE(until([&] { return counts_[1].arrived > arrived; }));
}

// As after a job before, whose rail lost a message of soft-RoCE's connection manager.
TEST_P(LinksOfBothWays, ComeUpByTheOtherWayAtFirst) {
  make(fake_verbs::default_devices(), true, false, "fake1");
  ASSERT_TRUE(until([&] { return both_up(); }));
  EXPECT_EQ(counts_[0].downs, 1);
  EXPECT_EQ(counts_[0].last_reason, "cannot connect by librdmacm: no answer");
  EXPECT_EQ(fake_verbs::live().ids, 2) << "only the listeners";
  ASSERT_TRUE(post());
  EXPECT_TRUE(until([&] { return counts_[1].arrived == 1; }));
}

// Each link has memory of its own; the window, the node's segment, is pinned with the first one.
TEST_P(VerbsRailLinks, PinTheWindowOnceForAllOfThem) {
  fake_verbs::reset(1);
  std::array<std::unique_ptr<Rail>, 3> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    auto options = fake_verbs::rail_options(rank == 0 ? 0 : 1, GetParam());
    options.rank = rank;
    options.size = 3;
    ranks[static_cast<std::size_t>(rank)] = make_verbs_rail(options);
  }
  ranks[0]->set_primary_window(windows_[0]);
  EXPECT_EQ(registrations(), 0) << "who has no link pins nothing";
  ranks[0]->connect(1, ranks[1]->address());
  EXPECT_EQ(registrations(), 2);
  ranks[0]->connect(2, ranks[2]->address());
  EXPECT_EQ(registrations(), 3);
  EXPECT_EQ(fake_verbs::live().memory_regions, 3);
}

TEST_P(VerbsRailLinks, SayWhenTheyHaveNoWayInCommon) {
  make();
  auto options =
      fake_verbs::rail_options(0, GetParam() == Ways::Manager ? Ways::Direct : Ways::Manager);
  options.rank = 0;
  options.size = 2;
  const auto other = make_verbs_rail(options);
  try {
    other->connect(1, rails_[1]->address());
    ADD_FAILURE() << "it connects";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Mismatch);
    EXPECT_NE(std::string(error.what()).find("ALLRAIL_CONNECT"), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, VerbsRailLinks, testing::Values(Ways::Manager, Ways::Direct),
                         [](const auto& one) { return fake_verbs::ways_text(one.param); });

INSTANTIATE_TEST_SUITE_P(Ways, LinksWithSideAddresses, testing::Values(Ways::Direct, Ways::Both),
                         [](const auto& one) { return fake_verbs::ways_text(one.param); });

INSTANTIATE_TEST_SUITE_P(Ways, LinksByLibrdmacmAlone, testing::Values(Ways::Manager));

INSTANTIATE_TEST_SUITE_P(Ways, LinksOfBothWays, testing::Values(Ways::Both));

TEST(VerbsRailOptions, NameTheDeviceThatIsMissing) {
  fake_verbs::reset(1);
  auto options = fake_verbs::rail_options(7, Ways::Direct);
  try {
    (void)make_verbs_rail(options);
    ADD_FAILURE() << "there is no such device";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("fake7"), std::string::npos) << error.what();
  }
  options.side_addresses.clear();
  EXPECT_THROW((void)make_verbs_rail(options), Error) << "it could not connect in any way";
  EXPECT_EQ(fake_verbs::live().text(), "nothing");
}

}  // namespace
}  // namespace allrail::transport
