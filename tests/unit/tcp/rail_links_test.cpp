// How links come up, go down and come back, and what the peer learns of it.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "include/allrail/error.hpp"
#include "tests/bytes.hpp"
#include "tests/unit/tcp/test_rails.hpp"
#include "transport/tcp/tcp_rail.hpp"

namespace allrail::transport {
namespace {

TEST(TcpRail, RefusesAddressesThatAreNone) {
  TestJob job(2, 64);
  auto address = job[1].rail->address();
  EXPECT_THROW(job[0].rail->connect(1, std::span(address).first(5)), Error);
  address[0] = std::byte{42};
  EXPECT_THROW(job[0].rail->connect(1, address), Error);
  EXPECT_THROW(job[0].rail->connect(0, job[0].rail->address()), Error);
  EXPECT_THROW(job[0].rail->connect(2, job[0].rail->address()), Error);
}

TEST(TcpRail, ConnectsAgainAfterCloseFromEitherSide) {
  TestJob job(2, 1 << 20);
  job.connect(0, 1);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
  const auto data = pattern(1 << 20, 10);
  for (int round = 0; round < 4; ++round) {
    const int closer = round % 2;
    const int other = 1 - closer;
    ASSERT_TRUE(job[other].rail->post(closer, make_chunk(data, 0, 1)));
    const int downs = job[closer].events.downs[other];
    const std::size_t arrived = job[closer].events.arrived[other].size();
    job[closer].rail->close(other, job[closer].events);
    EXPECT_FALSE(job[closer].rail->is_up(other));
    EXPECT_FALSE(job[closer].rail->post(other, make_chunk(data, 0, 1)));
    ASSERT_TRUE(job.poll_until(
        [&] { return job[other].events.downs[closer] == round / 2 + 1 && job.linked(0, 1); }));
    EXPECT_EQ(job[closer].events.downs[other], downs) << "the closer was told what it knows";
    EXPECT_EQ(job[closer].events.arrived[other].size(), arrived);
    ASSERT_TRUE(transfer(job, 0, 1, data, 50'000));
    EXPECT_TRUE(same_bytes(job[1].memory, data));
  }
}

// As the helper thread does: with no more looks than this a rank that computes, or is active
// elsewhere, takes part in a handshake.
TEST(TcpRail, ConnectsAgainAlsoWhereLooksAreRare) {
  TestJob job(3, 64);
  job.connect(0, 1);
  job.connect(1, 2);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1) && job.linked(1, 2); }));
  for (const int closer : {2, 1}) {
    job[closer].rail->close(3 - closer, job[closer].events);
    int looks = 0;
    for (; looks < 40 && !(looks > 0 && job.linked(1, 2)); ++looks) {
      const base::Deadline pause = base::Deadline::after(std::chrono::milliseconds(50));
      while (!pause.passed()) {
        for (const int rank : {0, 2}) job[rank].rail->poll(job[rank].events);
      }
      job[1].rail->poll(job[1].events);
      job[1].rail->flush_acknowledgements();
    }
    EXPECT_LT(looks, 16) << "closed by " << closer;
  }
}

TEST(TcpRail, ForgetsAndConnectsAnew) {
  TestJob job(2, 64);
  job.connect(0, 1);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
  job[0].rail->forget(1);
  ASSERT_TRUE(job.poll_until([&] { return job[1].events.downs[0] == 1; }));
  job.poll_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(job[1].rail->is_up(0));
  job.connect(0, 1);
  EXPECT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
}

TEST(TcpRail, KeepsAConnectionThatComesBeforeItIsWanted) {
  TestJob job(2, 64);
  job[0].rail->connect(1, job[1].rail->address());
  ASSERT_TRUE(job.poll_until([&] { return job[0].rail->is_up(1); }));
  const auto data = pattern(64, 11);
  ASSERT_TRUE(job[0].rail->post(1, make_chunk(data, 0, 1)));
  job.poll_for(std::chrono::milliseconds(20));
  EXPECT_EQ(job[1].events.ups[0], 0);
  EXPECT_TRUE(job[1].events.arrived[0].empty());
  job[1].rail->connect(0, job[0].rail->address());
  ASSERT_TRUE(job.poll_until([&] { return job[0].events.completed[1] == 1; }));
  EXPECT_TRUE(same_bytes(job[1].memory, data));
}

TEST(TcpRail, ReportsEveryFailingConnectAndGoesOnTrying) {
  TestJob job(2, 64);
  const auto address = job[1].rail->address();
  const auto replacement_address = [&] {
    job[1].rail.reset();
    return address;
  }();
  job[0].rail->connect(1, replacement_address);
  ASSERT_TRUE(job.poll_until([&] { return job[0].events.downs[1] == 1; }));
  EXPECT_NE(job[0].events.last_reason.find("cannot connect to 127.0.0.2:"), std::string::npos)
      << job[0].events.last_reason;
  EXPECT_NE(job[0].events.last_reason.find("refused"), std::string::npos);
  EXPECT_TRUE(job.poll_until([&] { return job[0].events.downs[1] == 3; }))
      << "the fabric is to learn that this pair of rails does not answer";
  EXPECT_EQ(job[0].events.ups[1], 0);
  EXPECT_EQ(job[0].events.answers[1], 0);
}

TEST(TcpRail, TriesAnotherRailOfThePeerWhereItIsTold) {
  TestJob job(2, 64);
  const std::unique_ptr<Rail> other = job.make_rail(1, 5);
  RecordedEvents at_other;
  const auto gone = [&] {
    const auto address = job[1].rail->address();
    job[1].rail.reset();
    return address;
  }();
  job[0].rail->connect(1, gone);
  ASSERT_TRUE(job.poll_until([&] { return job[0].events.downs[1] == 1; }));
  // Not wanted there yet: the peer has answered, and its end waits.
  job[0].rail->connect(1, other->address());
  ASSERT_TRUE(job.poll_until([&] {
    other->poll(at_other);
    return job[0].events.answers[1] == 1 && job[0].events.ups[1] == 1;
  }));
  EXPECT_EQ(at_other.ups[0], 0);
  other->connect(0, job[0].rail->address());
  ASSERT_TRUE(job.poll_until([&] {
    other->poll(at_other);
    return at_other.ups[0] == 1;
  }));
  EXPECT_EQ(job[0].events.rail_of_peer[1], 5);
  EXPECT_EQ(at_other.rail_of_peer[0], 3) << "the number of the rail that connected";
  // A link that is up stays.
  job[0].rail->connect(1, gone);
  job.poll_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(job[0].rail->is_up(1));
}

TEST(TcpRail, ReportsAPeerThatIsGoneAfterItsLastWords) {
  TestJob job(2, 64);
  job.connect(0, 1);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
  const std::string text = "goodbye";
  ASSERT_TRUE(job[1].rail->post_control(0, std::as_bytes(std::span(text))));
  job[1].rail.reset();
  const auto data = pattern(64, 12);
  // The first provokes a reset, the second meets it: sending fails before receiving does.
  (void)job[0].rail->post(1, make_chunk(data, 0, 1));
  (void)job[0].rail->post(1, make_chunk(data, 0, 2));
  ASSERT_TRUE(job.poll_until([&] { return job[0].events.downs[1] == 1; }));
  EXPECT_EQ(job[0].events.controls[1], std::vector<std::string>{text});
  EXPECT_EQ(job[0].events.completed[1], 0U);
}

TEST(TcpRail, MayBeClosedFromInsideAnEvent) {
  TestJob job(2, 1 << 16);
  job.connect(0, 1);
  ASSERT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
  job[1].events.on_arrival = [&](int peer, std::uint32_t immediate) {
    if (immediate == 5) job[1].rail->close(peer, job[1].events);
  };
  const auto data = pattern(100, 13);
  for (std::uint32_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(job[0].rail->post(1, make_chunk(data, 0, i)));
  }
  ASSERT_TRUE(job.poll_until([&] { return job[0].events.downs[1] == 1; }));
  EXPECT_EQ(job[1].events.arrived[0], (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(job.poll_until([&] { return job.linked(0, 1); }));
}

}  // namespace
}  // namespace allrail::transport
