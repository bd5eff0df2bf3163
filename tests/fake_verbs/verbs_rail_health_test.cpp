// The verbs rail where no completion says that a link is of no use any more: the port has got other
// numbers, or its queue pair stands still.
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "include/allrail/error.hpp"
#include "tests/fake_verbs/linked_rails.hpp"
#include "transport/verbs/port_identity.hpp"

namespace allrail::transport {
namespace {

/// More than a machine that does other things keeps a rank from its looks.
constexpr std::int64_t kOverdueNs = 500'000'000;

class LinkHealth : public VerbsRailLinks {
 protected:
  bool carries() {
    const int arrived = counts_[1].arrived;
    return post() && until([&] { return counts_[1].arrived > arrived; });
  }
  /// Its device tells so, and the link of both goes down.
  void fail_device_of(std::size_t rank) {
    counts_ = {};
    make();
    ASSERT_TRUE(until([&] { return both_up(); }));
    fake_verbs::tell(rank == 0 ? "fake0" : "fake1", IBV_EVENT_DEVICE_FATAL);
    ASSERT_TRUE(until([&] { return counts_[rank].downs > 0; }));
  }
  /// For so long nothing happens that would end a wait.
  void look_for(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    ASSERT_TRUE(until([&] { return std::chrono::steady_clock::now() > end; }));
  }
};

// With nothing in flight that would fail.
TEST_P(LinkHealth, FollowsThePortToItsNewNumbers) {
  for (const bool infiniband : {false, true}) {
    for (const char* device : {"fake0", "fake1"}) {
      SCOPED_TRACE(std::string(device) + (infiniband ? ", InfiniBand" : ", RoCE"));
      std::vector<DeviceOptions> devices = fake_verbs::default_devices();
      for (DeviceOptions& one : devices) one.infiniband = infiniband;
      gid_index_ = infiniband ? 0 : 1;
      counts_ = {};
      make(devices);
      ASSERT_TRUE(until([&] { return both_up(); }));
      fake_verbs::renumber(device);
      const Counts& there = counts_[device == std::string("fake0") ? 0 : 1];
      ASSERT_TRUE(until([&] { return there.downs > 0; }));
      EXPECT_NE(there.first_reason.find(infiniband ? "its LID is" : "has moved to index 3"),
                std::string::npos)
          << there.first_reason;
      ASSERT_TRUE(until([&] { return both_up(); }));
      EXPECT_TRUE(carries());
      TearDown();
    }
  }
}

// Most events are of other addresses of the interface, or come when nothing has changed.
TEST_P(LinkHealth, StaysWhereNothingHasChanged) {
  make();
  ASSERT_TRUE(until([&] { return both_up(); }));
  for (const ibv_event_type type :
       {IBV_EVENT_LID_CHANGE, IBV_EVENT_GID_CHANGE, IBV_EVENT_PKEY_CHANGE, IBV_EVENT_SM_CHANGE,
        IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_PORT_ACTIVE}) {
    fake_verbs::tell("fake0", type);
    fake_verbs::tell("fake1", type);
    look_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(carries());
  }
  EXPECT_EQ(counts_[0].downs + counts_[1].downs, 0) << counts_[0].first_reason;
}

// Nothing is in flight, so only the event says so.
TEST_P(LinkHealth, EndsWithADeviceThatFails) {
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ASSERT_NO_FATAL_FAILURE(fail_device_of(rank));
    EXPECT_EQ(counts_[rank].first_reason, "its device failed");
    ASSERT_TRUE(until([&] { return both_up(); })) << "the device works again";
    EXPECT_TRUE(carries());
    TearDown();
  }
}

// As the helper thread does for a rank that computes: every look has to find what is due.
TEST_P(LinkHealth, ComesBackAlsoWhereLooksAreRare) {
  make();
  ASSERT_TRUE(until([&] { return both_up(); }));
  fake_verbs::tell("fake0", IBV_EVENT_DEVICE_FATAL);
  int looks = 0;
  for (; looks < 100 && !(counts_[0].downs > 0 && both_up()); ++looks) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    while (std::chrono::steady_clock::now() < end) rails_[1]->poll(counts_[1]);
    rails_[0]->poll(counts_[0]);
    rails_[0]->flush_acknowledgements();
  }
  EXPECT_LE(looks, 10) << "of these some wait for the next try; on a slow machine there are fewer";
  EXPECT_TRUE(carries());
}

// Memory is registered with all rails; what this one refuses is no reason to end the others' calls.
TEST_P(LinkHealth, IsNeverMadeAgainOverADeviceThatTakesNothing) {
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ASSERT_NO_FATAL_FAILURE(fail_device_of(rank));
    std::vector<std::byte> memory(4096);
    fake_verbs::fail_call_of("ibv_reg_mr", 1, EIO);
    const RemoteKey key = rails_[rank]->register_window(memory);
    EXPECT_EQ(key.key, 0U);
    rails_[rank]->register_source(memory);
    const int ups = counts_[0].ups + counts_[1].ups;
    look_for(std::chrono::milliseconds(300));
    EXPECT_EQ(counts_[0].ups + counts_[1].ups, ups);
    EXPECT_FALSE(rails_[0]->is_up(1) || rails_[1]->is_up(0));
    rails_[rank]->unregister_source(memory);
    rails_[rank]->unregister_window(key);
    TearDown();
  }
}

// Whoever registers may come before the event does.
TEST_P(LinkHealth, EndsWhereADeviceThatDoesNotAnswerRefusesMemory) {
  make();
  ASSERT_TRUE(until([&] { return both_up(); }));
  std::vector<std::byte> memory(4096);
  fake_verbs::fail_call_of("ibv_reg_mr", 1, EIO);
  EXPECT_THROW(rails_[0]->register_window(memory), Error) << "the device is well";
  EXPECT_TRUE(carries());
  fake_verbs::fail_call_of("ibv_reg_mr", 1, EIO);
  fake_verbs::fail_call_of("ibv_query_port", 1, EIO);
  EXPECT_EQ(rails_[0]->register_window(memory).key, 0U);
  ASSERT_TRUE(until([&] { return counts_[0].downs > 0; }));
  EXPECT_EQ(counts_[0].first_reason, "its device is gone");
}

// A request has the key of one of the sources that its bytes lie in, which another call may end.
class SourceEnds : public LinkHealth {
 protected:
  /// Half of the source is one, too; the whole one ends while a request has its key.
  void end_source() {
    make();
    ASSERT_TRUE(until([&] { return both_up(); }));
    rails_[0]->register_source(std::span<const std::byte>(source_).first(source_.size() / 2));
    ASSERT_TRUE(until([&] { return fake_verbs::busy_queue_pairs() == 0; }));
    fake_verbs::freeze("fake0");
    ASSERT_TRUE(post());
    rails_[0]->submit();
    rails_[0]->unregister_source(source_);
  }
};

TEST_P(SourceEnds, AndWhatIsInFlightArrives) {
  ASSERT_NO_FATAL_FAILURE(end_source());
  const int regions = fake_verbs::live().memory_regions;
  fake_verbs::restore("fake0");
  ASSERT_TRUE(until([&] { return counts_[1].arrived + counts_[0].downs > 0; }));
  EXPECT_EQ(counts_[0].downs, 0) << counts_[0].first_reason;
  EXPECT_TRUE(carries()) << "from the other one";
  EXPECT_TRUE(until([&] { return fake_verbs::live().memory_regions == regions - 1; }))
      << "it was given back";
}

// What is wrong with other memory is no reason to take it away.
TEST_P(SourceEnds, AndStaysWhereMemoryIsRefusedForAnotherReason) {
  ASSERT_NO_FATAL_FAILURE(end_source());
  const std::vector<std::byte> memory(4096);
  fake_verbs::fail_call_of("ibv_reg_mr", 1, EFAULT);
  EXPECT_THROW(rails_[0]->register_source(memory), Error);
  fake_verbs::restore("fake0");
  ASSERT_TRUE(until([&] { return counts_[1].arrived + counts_[0].downs > 0; }));
  EXPECT_EQ(counts_[0].downs, 0) << counts_[0].first_reason;
}

// What may be locked is counted without it.
TEST_P(SourceEnds, AndIsInNobodysWay) {
  ASSERT_NO_FATAL_FAILURE(end_source());
  const std::vector<std::byte> memory(4096);
  fake_verbs::fail_call_of("ibv_reg_mr", 1, ENOMEM);
  EXPECT_NO_THROW(rails_[0]->register_source(memory));
  fake_verbs::restore("fake0");
  ASSERT_TRUE(until([&] { return counts_[0].downs > 0; })) << "the request had no key any more";
  ASSERT_TRUE(until([&] { return both_up(); }));
  EXPECT_TRUE(carries());
}

TEST_P(LinkHealth, EndsWithAQueuePairThatStandsStill) {
  overdue_ns_ = kOverdueNs;
  make();
  ASSERT_TRUE(until([&] { return both_up(); }));
  look_for(std::chrono::milliseconds(600));
  EXPECT_EQ(counts_[0].downs, 0) << "nothing is in flight";
  ASSERT_TRUE(carries());
  fake_verbs::freeze("fake0");
  ASSERT_TRUE(post());
  ASSERT_TRUE(until([&] { return counts_[0].downs > 0; }));
  EXPECT_NE(counts_[0].first_reason.find("completed nothing for 500 ms"), std::string::npos)
      << counts_[0].first_reason;
  fake_verbs::restore("fake0");
  ASSERT_TRUE(until([&] { return both_up(); }));
  EXPECT_TRUE(carries());
}

// A rank that has not looked for a while has not waited: of that time nothing was in flight.
TEST_P(LinkHealth, DoesNotCountTheTimeBeforeARequest) {
  overdue_ns_ = 1'000'000;
  make();
  ASSERT_TRUE(until([&] { return both_up(); }));
  ASSERT_TRUE(until([&] { return fake_verbs::busy_queue_pairs() == 0; }));
  fake_verbs::freeze("fake0");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_TRUE(post());
  rails_[0]->submit();
  // Every eighth poll looks at the clock: one look, which meets the request for the first time.
  for (int polls = 0; polls < 8; ++polls) rails_[0]->poll(counts_[0]);
  EXPECT_EQ(counts_[0].downs, 0) << counts_[0].first_reason;
  EXPECT_TRUE(until([&] { return counts_[0].downs > 0; }));
  fake_verbs::restore("fake0");
}

class LinkHealthOfBothWays : public LinkHealth {};

// librdmacm would connect a queue pair that stands still again and again.
TEST_P(LinkHealthOfBothWays, AsksForDataBeforeItTrustsAgain) {
  overdue_ns_ = kOverdueNs;
  make();
  ASSERT_TRUE(until([&] { return both_up(); }));
  EXPECT_EQ(fake_verbs::live().ids, 4) << "by librdmacm";
  fake_verbs::freeze("fake0");
  ASSERT_TRUE(post());
  ASSERT_TRUE(until([&] { return counts_[0].downs > 0; }));
  const int ups = counts_[0].ups;
  look_for(std::chrono::milliseconds(500));
  EXPECT_EQ(counts_[0].ups, ups);
  fake_verbs::restore("fake0");
  ASSERT_TRUE(until([&] { return both_up(); }));
  EXPECT_TRUE(carries());
}

// Its ids hear of it, which links that were connected without librdmacm have none of.
TEST_P(LinkHealthOfBothWays, EndsWithADeviceThatIsRemoved) {
  for (std::size_t rank = 0; rank < 2; ++rank) {
    counts_ = {};
    make();
    ASSERT_TRUE(until([&] { return both_up(); }));
    fake_verbs::tell_removal(rank == 0 ? "fake0" : "fake1");
    ASSERT_TRUE(until([&] { return counts_[rank].downs > 0; }));
    EXPECT_NE(counts_[rank].first_reason.find("remov"), std::string::npos)
        << counts_[rank].first_reason;
    TearDown();
  }
}

TEST(PortIdentity, SaysWhyLinksAreOutdated) {
  verbs::PortIdentity before;
  before.lid = 3;
  before.partition_key = 0xffff;
  before.gid_index = 1;
  before.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 1};
  EXPECT_EQ(verbs::why_outdated(before, before), "");
  verbs::PortIdentity now = before;
  now.lid = 7;
  EXPECT_EQ(verbs::why_outdated(before, now), "its LID is 7 now, and was 3");
  now = before;
  now.partition_key = 0x8001;
  EXPECT_EQ(verbs::why_outdated(before, now), "its partition key is 0x8001 now, and was 0xffff");
  now = before;
  now.gid[15] = 2;
  EXPECT_EQ(verbs::why_outdated(before, now), "its GID is 10.9.0.2 now, and was 10.9.0.1");
  now = before;
  now.gid_index = 2;
  EXPECT_EQ(verbs::why_outdated(before, now), "its GID 10.9.0.1 has moved to index 2");
  now.gid_index = -1;
  EXPECT_EQ(verbs::why_outdated(before, now), "its GID 10.9.0.1 is gone");
  EXPECT_EQ(verbs::why_outdated(now, before), "") << "links without it went down when it left";
}

INSTANTIATE_TEST_SUITE_P(Ways, LinkHealth, testing::Values(Ways::Manager, Ways::Direct),
                         [](const auto& one) { return fake_verbs::ways_text(one.param); });
INSTANTIATE_TEST_SUITE_P(Ways, SourceEnds, testing::Values(Ways::Manager, Ways::Direct),
                         [](const auto& one) { return fake_verbs::ways_text(one.param); });

INSTANTIATE_TEST_SUITE_P(Ways, LinkHealthOfBothWays, testing::Values(Ways::Both));

}  // namespace
}  // namespace allrail::transport
