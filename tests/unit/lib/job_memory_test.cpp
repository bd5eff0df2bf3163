// Node memory and zero-copy limits follow the least that any rank may share or lock.
#include "lib/job_memory.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "include/allrail/error.hpp"

namespace allrail {
namespace {

constexpr std::uint64_t kMebi = 1024ULL * 1024;

/// Two hosts with two ranks each, one node per host.
struct TwoHosts {
  std::vector<Card> cards{4};
  coll::Roster roster{schedule::NodeMap(std::vector<int>{0, 0, 1, 1}), 0};

  TwoHosts() {
    for (std::size_t rank = 0; rank < cards.size(); ++rank) {
      cards[rank].host = rank < 2 ? "one" : "two";
      cards[rank].shared_memory_bytes = 1024 * kMebi;
      cards[rank].rail_ends.resize(2);
    }
  }
};

TEST(JobMemory, IsWhatIsWantedWhereNothingLimitsIt) {
  const TwoHosts job;
  const JobMemory memory = settle_memory(job.cards, job.roster, 64 * kMebi);
  EXPECT_EQ(memory.node_bytes, 64 * kMebi);
  EXPECT_EQ(memory.user_bytes, UINT64_MAX);
  EXPECT_FALSE(memory.segment_is_cut);
}

TEST(JobMemory, FollowsTheSmallestSharedMemory) {
  TwoHosts job;
  job.cards[3].shared_memory_bytes = 20 * kMebi;
  EXPECT_EQ(settle_memory(job.cards, job.roster, 64 * kMebi).node_bytes, 10 * kMebi);
  job.cards[3].shared_memory_bytes = 0;
  EXPECT_EQ(settle_memory(job.cards, job.roster, 64 * kMebi).node_bytes, kLeastNodeMemoryBytes);
}

TEST(JobMemory, FollowsTheLeastThatARankMayLock) {
  TwoHosts job;
  job.cards[0].lockable_bytes = 1024 * kMebi;
  job.cards[2].lockable_bytes = 8 * kMebi;
  const JobMemory memory = settle_memory(job.cards, job.roster, 64 * kMebi);
  EXPECT_EQ(memory.limiting_rank, 2);
  EXPECT_TRUE(memory.segment_is_cut);
  EXPECT_EQ(memory.node_bytes, 2 * kMebi);
  EXPECT_EQ(memory.user_bytes, 1 * kMebi);
  // Everything that may be registered at once fits, and something is left for the links.
  EXPECT_EQ(memory.buffer_bytes, kMebi / 2);
  EXPECT_LT(2 * (memory.node_bytes + memory.user_bytes + memory.buffer_bytes), 8 * kMebi);
  const std::string of_buffers = buffer_warning(memory, 2, 10 * kMebi);
  for (const char* part : {"rank 2", "10M", "8M", "ulimit -l", "160M"}) {
    EXPECT_NE(of_buffers.find(part), std::string::npos) << part << " in: " << of_buffers;
  }
  const std::string text = segment_warning(memory, 64 * kMebi);
  for (const char* part : {"rank 2", "8M", "ulimit -l", "2M", "64M", "256M"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
}

TEST(JobMemory, FewerRailsMayLockMoreEach) {
  TwoHosts job;
  job.cards[1].lockable_bytes = 8 * kMebi;
  job.cards[1].rail_ends.resize(1);
  job.cards[2].lockable_bytes = 12 * kMebi;  // over two rails
  const JobMemory memory = settle_memory(job.cards, job.roster, 64 * kMebi);
  EXPECT_EQ(memory.limiting_rank, 2);
  EXPECT_EQ(memory.node_bytes, 3 * kMebi);
}

TEST(JobMemory, ALimitThatIsLargeEnoughCutsOnlyWhatCallsRegister) {
  TwoHosts job;
  job.cards[1].lockable_bytes = 1024 * kMebi;
  const JobMemory memory = settle_memory(job.cards, job.roster, 64 * kMebi);
  EXPECT_FALSE(memory.segment_is_cut);
  EXPECT_EQ(memory.node_bytes, 64 * kMebi);
  EXPECT_EQ(memory.user_bytes, 128 * kMebi);
  const std::string text = user_warning(memory, 200 * kMebi);
  for (const char* part : {"rank 1", "1G", "ulimit -l", "128M", "200M", "1600M"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
}

TEST(JobMemory, ALimitBelowTheSmallestSegmentIsAnErrorThatNamesIt) {
  TwoHosts job;
  job.cards[3].lockable_bytes = 64ULL * 1024;
  try {
    settle_memory(job.cards, job.roster, 64 * kMebi);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::ResourceLimit);
    EXPECT_EQ(error.peer(), 3);
    for (const char* part : {"rank 3", "65536", "4194304", "ulimit -l", "ALLRAIL_RAILS=tcp"}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part;
    }
  }
}

/// What the check says of a limit that is too small.
std::string said_of_too_little(const TwoHosts& job, bool is_share) {
  try {
    settle_memory(job.cards, job.roster, 64 * kMebi, is_share);
    return "no error";
  } catch (const Error& error) {
    return error.what();
  }
}

// Its number is none that the user has set.
TEST(JobMemory, AShareOfTheLimitIsToldAsOne) {
  TwoHosts job;
  job.cards[3].lockable_bytes = 64ULL * 1024;
  const std::string too_little = said_of_too_little(job, true);
  for (const char* part : {"65536 bytes of memory here, its share of the limit", "a 16th",
                           "a half of what is left", "ulimit -l", "split less often"}) {
    EXPECT_NE(too_little.find(part), std::string::npos) << part << " in: " << too_little;
  }
  EXPECT_EQ(said_of_too_little(job, false).find("share"), std::string::npos);

  job.cards[3].lockable_bytes = 8 * kMebi;
  for (const bool is_share : {true, false}) {
    const JobMemory memory = settle_memory(job.cards, job.roster, 64 * kMebi, is_share);
    for (const std::string& text :
         {segment_warning(memory, 64 * kMebi), user_warning(memory, 10 * kMebi),
          buffer_warning(memory, 3, 10 * kMebi)}) {
      EXPECT_EQ(text.find("its share of the limit") != std::string::npos, is_share) << text;
    }
  }
}

/// What the check says; empty: there is room.
std::string verdict_on(const TwoHosts& job, std::uint64_t segment_bytes, int& peer) {
  try {
    check_shared_memory(job.cards, job.roster, std::vector<std::uint64_t>{0, 0, segment_bytes});
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::ResourceLimit);
    peer = error.peer();
    return error.what();
  }
}

TEST(JobMemory, SegmentsThatDoNotFitAreAnErrorThatNamesTheHost) {
  TwoHosts job;
  int peer = -1;
  EXPECT_EQ(verdict_on(job, 1024 * kMebi, peer), "");
  job.cards[2].shared_memory_bytes = job.cards[3].shared_memory_bytes = 5 * kMebi;
  EXPECT_EQ(verdict_on(job, 5 * kMebi, peer), "");
  // This one looked while the other was still removing what a dead job had left.
  job.cards[3].shared_memory_bytes = kMebi;
  EXPECT_EQ(verdict_on(job, 5 * kMebi, peer), "");
  const std::string text = verdict_on(job, 5 * kMebi + 1, peer);
  EXPECT_EQ(peer, 2);
  for (const char* part : {"host two (rank 2)", "5242880", "5242881", "enlarge /dev/shm"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
}

TEST(JobMemory, NodesOfAHostShareWhatIsFreeThere) {
  TwoHosts job;
  for (Card& card : job.cards) card.host = "one";
  for (Card& card : job.cards) card.shared_memory_bytes = 9 * kMebi;
  int peer = -1;
  EXPECT_EQ(verdict_on(job, 4 * kMebi, peer), "");
  EXPECT_NE(verdict_on(job, 5 * kMebi, peer), "");
  EXPECT_EQ(peer, 0);
  for (Card& card : job.cards) card.shared_memory_bytes = UINT64_MAX;  // no limit
  EXPECT_EQ(verdict_on(job, 1024 * kMebi, peer), "");
}

}  // namespace
}  // namespace allrail
