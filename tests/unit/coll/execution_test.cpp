// What an execution makes of headers that came over rails: their stamps, and their done counts.
#include <gtest/gtest.h>

#include "coll/allgather/allgather.hpp"
#include "tests/unit/coll/small_job.hpp"

namespace allrail::coll::testing {
namespace {

constexpr std::uint64_t kStamp = 0x1234;
constexpr std::uint64_t kOtherStamp = 0x1235;

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (const auto& algorithm : allgather::algorithms()) names.emplace_back(algorithm.name);
  return names;
}

TEST(Execution, EveryBlockArrivesWhereTheStampsAreEqual) {
  for (const std::string& algorithm : algorithm_names()) {
    SmallJob job(4);
    job.plan(algorithm, 100);
    for (int rank = 0; rank < 4; ++rank) job.start(rank, kStamp);
    job.run();
    for (int rank = 0; rank < 4; ++rank) {
      ASSERT_TRUE(job.done(rank)) << algorithm;
      EXPECT_EQ(job.mismatch(rank), nullptr);
      for (int from = 0; from < 4; ++from) EXPECT_EQ(job.block(rank, from), job.sent_by(from));
    }
  }
}

/// Whoever hears of the other finds it by that header, and neither takes a byte as a result.
void expect_refusal(SmallJob& job, const std::string& algorithm, std::uint64_t bytes) {
  const std::string what = algorithm + " of " + std::to_string(bytes) + " bytes";
  // Before a broadcast only the one who gathers has heard of anybody.
  const bool both = algorithm.find("gather") == std::string::npos;
  job.start(0, kStamp);
  job.start(1, kOtherStamp);
  job.run();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_FALSE(job.done(rank)) << what;
    for (const std::byte byte : job.block(rank, 1 - rank)) {
      ASSERT_EQ(byte, SmallJob::kUntouched) << what << ": bytes of another call";
    }
    if (rank == 1 && !both) continue;
    ASSERT_NE(job.mismatch(rank), nullptr) << what;
    EXPECT_EQ(job.mismatch(rank)->peer, 1 - rank) << what;
    EXPECT_EQ(job.mismatch(rank)->theirs.stamp, rank == 0 ? kOtherStamp : kStamp) << what;
  }
}

TEST(Execution, AHeaderWithAnotherStampThatCameOverARailIsRefused) {
  for (const std::string& algorithm : algorithm_names()) {
    for (const std::uint64_t bytes : {0, 100, 5000}) {
      SmallJob job(2);
      job.plan(algorithm, bytes);
      expect_refusal(job, algorithm, bytes);
    }
  }
}

TEST(Execution, AReadyTokenWithAnotherStampIsRefusedBeforeAByteIsPut) {
  for (const auto& algorithm : allgather::algorithms()) {
    if (!algorithm.zero_copy) continue;
    SmallJob job(2);
    job.plan(std::string(algorithm.name), 5000, 1);
    expect_refusal(job, std::string(algorithm.name), 5000);
  }
}

TEST(Execution, PeersPutIntoTheMiddleOfABufferThatNoCallRegisters) {
  for (const auto& algorithm : allgather::algorithms()) {
    if (!algorithm.zero_copy) continue;
    SmallJob job(4);
    job.receive_into_buffers(4097);
    job.plan(std::string(algorithm.name), 5000, 1);
    for (int call = 0; call < 3; ++call) {
      const std::uint64_t before = job.registrations(1);
      for (int rank = 0; rank < 4; ++rank) job.start(rank, kStamp);
      // What is sent is ordinary memory here.
      EXPECT_LE(job.registrations(1), before + 1) << algorithm.name;
      job.run();
      for (int rank = 0; rank < 4; ++rank) {
        ASSERT_TRUE(job.done(rank)) << algorithm.name;
        for (int from = 0; from < 4; ++from) EXPECT_EQ(job.block(rank, from), job.sent_by(from));
        job.finish(rank);
      }
    }
  }
}

TEST(Execution, ALaterSliceLiesBehindTheEarlierOnesInMemoryOfEitherKind) {
  for (const std::uint64_t offset : {0, 4097}) {
    SmallJob job(3);
    if (offset != 0) job.receive_into_buffers(offset);
    job.begin_slice_at(3001);
    job.plan("ring", 5000, 1);
    for (int rank = 0; rank < 3; ++rank) job.start(rank, kStamp);
    job.run();
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(job.done(rank)) << offset;
      for (int from = 0; from < 3; ++from) EXPECT_EQ(job.block(rank, from), job.sent_by(from));
      job.finish(rank);
    }
  }
}

TEST(Execution, AWindowThatIsTooSmallForTheCallIsRefusedBeforeAByteIsPut) {
  for (const std::uint64_t slice_offset : {0, 3001}) {
    SmallJob job(2);
    job.receive_into_buffers(100, 1);
    job.begin_slice_at(slice_offset);
    job.plan("direct", 5000, 1);
    for (int rank = 0; rank < 2; ++rank) job.start(rank, kStamp);
    job.run();
    // Rank 0 may put its block, which lies in the window; rank 1 finds that its own does not.
    EXPECT_FALSE(job.done(0));
    ASSERT_NE(job.mismatch(1), nullptr);
    EXPECT_EQ(job.mismatch(1)->peer, 0);
    for (const std::byte byte : job.block(0, 1)) ASSERT_EQ(byte, SmallJob::kUntouched);
  }
}

TEST(Execution, AnotherStampIsRefusedWhereverItIsInTheJob) {
  for (const std::string& algorithm : algorithm_names()) {
    for (int odd = 0; odd < 5; ++odd) {
      SmallJob job(5);
      job.plan(algorithm, 64);
      for (int rank = 0; rank < 5; ++rank) job.start(rank, rank == odd ? kOtherStamp : kStamp);
      job.run();
      int refused = 0;
      for (int rank = 0; rank < 5; ++rank) {
        EXPECT_FALSE(job.done(rank)) << algorithm << ", rank " << rank << " without " << odd;
        if (job.mismatch(rank) != nullptr) ++refused;
      }
      EXPECT_GT(refused, 0) << algorithm;
    }
  }
}

TEST(Execution, LearnsTheDoneCountsOfNodesThatNeverPutHere) {
  // In recursive doubling, rank 3's region comes to rank 0 behind rank 2's: no await looks at it.
  constexpr int kRanks = 8;
  constexpr std::uint64_t kCalls = 8;
  SmallJob job(kRanks);
  job.plan("smp-recursive-doubling", 16);
  for (std::uint64_t call = 1; call <= kCalls; ++call) {
    for (int rank = 0; rank < kRanks; ++rank) job.start(rank, kStamp + call);
    job.run();
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_TRUE(job.done(rank));
      job.finish(rank);
    }
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int node = 0; node < kRanks; ++node) {
      if (node == rank) continue;
      // A header carries what its node knew when it was written: all but the last few calls.
      EXPECT_GE(job.counts(rank).known_of(node), kCalls - 4)
          << "rank " << rank << " of node " << node;
    }
  }
}

TEST(DoneCounts, AreToldByMessageAlsoWhereAHeaderIsOnItsWay) {
  // The peer learns what a header says when it awaits that block: perhaps after it needs it.
  SmallJob job(2);
  job.plan("smp-direct", 16);
  job.counts(0).finished(7);
  job.counts(0).note_header(1, 7);
  EXPECT_EQ(job.fabric(1).told_done(0), 0U);
  job.counts(0).tell(1);
  job.let_time_pass();
  EXPECT_EQ(job.fabric(1).told_done(0), 7U);
}

TEST(DoneCounts, FollowTheAcknowledgementsOfOwnPuts) {
  SmallJob job(2);
  job.plan("smp-direct", 16);
  job.let_time_pass();
  const std::vector<std::byte> bytes(16);
  transport::Put put;
  put.peer = 1;
  put.from = bytes.data();
  put.bytes = bytes.size();
  put.call = 7;
  job.fabric(1).expect(0, bytes.size());
  job.fabric(0).put(put);
  job.counts(0).finished(7);
  EXPECT_FALSE(job.counts(0).my_node_is_done(7)) << "a rail may still read from its slot";
  EXPECT_TRUE(job.counts(0).my_node_is_done(6));
  job.let_time_pass();
  EXPECT_TRUE(job.counts(0).my_node_is_done(7)) << "whoever waits for the slot looks at it anew";
}

}  // namespace
}  // namespace allrail::coll::testing
