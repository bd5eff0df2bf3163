// The table of choices: it answers everywhere with a schedule that exists, and by size and shape.
#include "coll/selection.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "coll/allgather/allgather.hpp"

namespace allrail::coll {
namespace {

Selection select(std::uint64_t bytes_per_rank, int nodes, int ranks_per_node = 1) {
  SelectionFacts facts;
  facts.bytes_per_rank = bytes_per_rank;
  facts.nodes = nodes;
  facts.ranks = nodes * ranks_per_node;
  facts.smallest_node = facts.largest_node = ranks_per_node;
  facts.rails = 2;
  return select_allgather(facts);
}

TEST(Selection, AlwaysNamesAnAlgorithmAndAReason) {
  for (int nodes = 1; nodes <= 64; ++nodes) {
    for (const int ranks_per_node : {1, 2, 7}) {
      for (std::uint64_t bytes = 0; bytes < (std::uint64_t{1} << 34); bytes = bytes * 3 + 1) {
        const Selection selection = select(bytes, nodes, ranks_per_node);
        ASSERT_NE(allgather::find_algorithm(selection.algorithm), nullptr)
            << bytes << " bytes on " << nodes << " nodes";
        ASSERT_GE(selection.ports, 1);
        ASSERT_FALSE(selection.reason.empty());
      }
    }
  }
}

TEST(Selection, FollowsTheSizeOfTheNodesBlock) {
  EXPECT_EQ(select(8, 4).algorithm, "smp-recursive-doubling");
  EXPECT_EQ(select(32 << 10, 4, 1).algorithm, "smp-recursive-doubling");
  EXPECT_EQ(select(64 << 10, 8, 1).algorithm, "smp-recursive-doubling");
  EXPECT_EQ(select(64 << 10, 8, 2).algorithm, "smp-ring") << "two ranks send twice as much";
  EXPECT_EQ(select(65 << 10, 8).algorithm, "smp-ring");
  EXPECT_EQ(select(65 << 10, 8).ports, 1) << "a second sender would queue behind the first";
}

TEST(Selection, DoublesLargerBlocksAmongFewerNodes) {
  EXPECT_EQ(select(256 << 10, 4).algorithm, "smp-recursive-doubling");
  EXPECT_EQ(select(257 << 10, 4).algorithm, "smp-ring");
  EXPECT_EQ(select(32 << 10, 4, 2).algorithm, "smp-recursive-doubling");
  EXPECT_EQ(select(33 << 10, 4, 2).algorithm, "smp-ring") << "ranks of a node fill its rails";
  EXPECT_EQ(select(256 << 10, 2).algorithm, "smp-recursive-doubling");
  EXPECT_EQ(select(65 << 10, 3).algorithm, "smp-ring");
}

TEST(Selection, TakesFewMessagesWhereRailsAreFasterThanProcessors) {
  SelectionFacts facts;
  facts.pace = transport::Pace::Fast;
  const auto gathered = [&](std::uint64_t bytes, int nodes, int ranks_per_node) {
    facts.bytes_per_rank = bytes;
    facts.nodes = nodes;
    facts.largest_node = ranks_per_node;
    return select_allgather(facts).algorithm;
  };
  EXPECT_EQ(gathered(256 << 10, 8, 2), "smp-recursive-doubling");
  EXPECT_EQ(gathered(257 << 10, 8, 2), "smp-ring");
  EXPECT_EQ(gathered(256 << 10, 6, 2), "smp-ring");
  EXPECT_EQ(gathered(kZeroCopyThresholdBytes, 4, 1), "ring");
  facts.zero_copy_threshold_bytes = kBufferThresholdBytes;
  EXPECT_EQ(gathered(kBufferThresholdBytes, 4, 1), "ring") << "straight into Buffers";

  const auto broadcast = [&](std::uint64_t bytes, int nodes) {
    facts.bytes_per_rank = bytes;
    facts.nodes = nodes;
    return select_rooted(Operation::Broadcast, facts);
  };
  EXPECT_EQ(broadcast(1 << 20, 4).algorithm, "smp-binomial");
  EXPECT_EQ(broadcast(1 << 20, 4).ports, 1);
  EXPECT_EQ(broadcast((1 << 20) + 1, 4).algorithm, "smp-chain");
  EXPECT_EQ(broadcast(64 << 10, 5).algorithm, "smp-chain");
  facts.pace = transport::Pace::Unknown;
  EXPECT_EQ(broadcast(64 << 10, 4).algorithm, "smp-chain");
}

TEST(Selection, CutsBlocksThatDifferUnlessRailsAreFaster) {
  SelectionFacts facts;
  facts.nodes = facts.ranks = 4;
  facts.rails = 2;
  for (const std::uint64_t bytes : {std::uint64_t{64} << 10, std::uint64_t{64} << 20}) {
    facts.bytes_per_rank = bytes;
    for (const auto pace :
         {transport::Pace::Unknown, transport::Pace::Slow, transport::Pace::Fast}) {
      facts.pace = pace;
      facts.blocks_differ = false;
      const std::string usual = select_allgather(facts).algorithm;
      EXPECT_NE(usual, allgather::kRingChain);
      facts.blocks_differ = true;
      const bool is_fast = pace == transport::Pace::Fast;
      EXPECT_EQ(select_allgather(facts).algorithm, is_fast ? usual : allgather::kRingChain);
      EXPECT_EQ(select_allgather(facts).ports, 1);
    }
  }
  facts.pace = transport::Pace::Slow;
  facts.nodes = 1;
  EXPECT_EQ(select_allgather(facts).algorithm, "smp-direct");
}

TEST(Selection, DoublesOnlyAmongPowersOfTwo) {
  EXPECT_EQ(select(16 << 10, 8).algorithm, "smp-recursive-doubling");
  EXPECT_EQ(select(16 << 10, 6).algorithm, "smp-bruck");
}

TEST(Selection, GoesStraightBetweenUserBuffersWhereOneRankHasTheNode) {
  EXPECT_EQ(select(kZeroCopyThresholdBytes, 4, 1).algorithm, "ring");
  EXPECT_EQ(select(kZeroCopyThresholdBytes - 1, 4, 1).algorithm, "smp-ring");
  EXPECT_EQ(select(kZeroCopyThresholdBytes, 4, 2).algorithm, "smp-ring");
}

TEST(Selection, TakesAsManyLeadersAsLocalityCallsForAndBytesAllow) {
  SelectionFacts facts;
  facts.ranks = 32;
  facts.nodes = 2;
  facts.smallest_node = facts.largest_node = 16;
  facts.natural_leaders = 4;
  const auto leaders = [&](std::uint64_t bytes_per_node) {
    facts.bytes_per_rank = bytes_per_node / 16;
    return select_allgather(facts).leaders;
  };
  EXPECT_EQ(leaders(0), 1);
  EXPECT_EQ(leaders(2 * kBytesPerLeader - 16), 1);
  EXPECT_EQ(leaders(2 * kBytesPerLeader), 2);
  EXPECT_EQ(leaders(4 * kBytesPerLeader), 4);
  EXPECT_EQ(leaders(400 * kBytesPerLeader), 4);
  facts.natural_leaders = 1;
  EXPECT_EQ(leaders(400 * kBytesPerLeader), 1);
  facts.natural_leaders = 4;
  facts.nodes = 1;
  EXPECT_EQ(leaders(400 * kBytesPerLeader), 1) << "nobody to talk to";
}

TEST(Selection, GoesBySwitchesWhereSeveralHaveSeveralNodes) {
  SelectionFacts facts;
  facts.nodes = facts.ranks = 17;
  for (const Operation operation :
       {Operation::Gather, Operation::Gatherv, Operation::Scatter, Operation::Scatterv}) {
    for (const int shared : {0, 1, 2}) {
      facts.shared_leaves = shared;
      facts.bytes_per_rank = 1024;
      EXPECT_EQ(select_rooted(operation, facts).algorithm,
                shared > 1 ? "topology" : "smp-binomial");
      facts.bytes_per_rank = 1025;
      EXPECT_EQ(select_rooted(operation, facts).algorithm, "smp-direct")
          << "large blocks cross once anyway";
    }
  }
  facts.bytes_per_rank = 8;
  EXPECT_EQ(select_rooted(Operation::Broadcast, facts).algorithm, "smp-binomial");
  facts.nodes = facts.shared_leaves = 1;
  EXPECT_EQ(select_rooted(Operation::Gather, facts).algorithm, "smp-direct") << "one node";
}

TEST(Selection, NeedsNoForwarderWhereNodesAreFew) {
  SelectionFacts facts;
  facts.bytes_per_rank = 8;
  const auto chosen = [&](Operation operation, int nodes) {
    facts.nodes = facts.ranks = nodes;
    return select_rooted(operation, facts);
  };
  EXPECT_EQ(chosen(Operation::Gather, 16).algorithm, "smp-direct");
  EXPECT_EQ(chosen(Operation::Gather, 16).ports, 15);
  EXPECT_EQ(chosen(Operation::Gather, 17).algorithm, "smp-binomial");
  EXPECT_EQ(chosen(Operation::Scatter, 8).algorithm, "smp-direct");
  EXPECT_EQ(chosen(Operation::Scatter, 9).algorithm, "smp-binomial");
  EXPECT_EQ(chosen(Operation::Broadcast, 4).ports, 3);
  EXPECT_EQ(chosen(Operation::Broadcast, 5).ports, 1);
  facts.bytes_per_rank = 1025;
  EXPECT_EQ(chosen(Operation::Alltoall, 4).ports, 3);
  EXPECT_EQ(chosen(Operation::Alltoall, 64).ports, 8);
}

TEST(Selection, DoublesSmallBlocksOfAlltoallsWherePairsOfNodesAnswerEachOther) {
  SelectionFacts facts;
  const auto algorithm = [&](int nodes, std::uint64_t bytes, bool fast) {
    facts.nodes = facts.ranks = nodes;
    facts.bytes_per_rank = bytes;
    facts.pace = fast ? transport::Pace::Fast : transport::Pace::Unknown;
    return select_rooted(Operation::Alltoall, facts).algorithm;
  };
  EXPECT_EQ(algorithm(4, 256, false), "smp-recursive-doubling");
  EXPECT_EQ(algorithm(6, 256, false), "smp-bruck");
  // More bytes for fewer messages: only where bytes cost little.
  EXPECT_EQ(algorithm(8, 1024, false), "smp-recursive-doubling");
  EXPECT_EQ(algorithm(8, 1025, false), "smp-direct");
  EXPECT_EQ(algorithm(16, 256, false), "smp-recursive-doubling");
  EXPECT_EQ(algorithm(16, 257, false), "smp-direct");
  EXPECT_EQ(algorithm(4, 4096, true), "smp-recursive-doubling");
  EXPECT_EQ(algorithm(6, 4096, true), "smp-direct");
  EXPECT_EQ(algorithm(4, 4097, true), "smp-direct");
}

TEST(Selection, PassesBroadcastsOnOverRailsThatWereSeenToBeSlow) {
  using transport::Pace;
  SelectionFacts facts;
  const auto algorithm = [&](int nodes, std::uint64_t bytes, Pace pace) {
    facts.nodes = facts.ranks = nodes;
    facts.bytes_per_rank = bytes;
    facts.pace = pace;
    return select_rooted(Operation::Broadcast, facts).algorithm;
  };
  EXPECT_EQ(algorithm(4, 512, Pace::Slow), "smp-binomial");
  for (const std::uint64_t bytes : {513, 1024, 32 << 10}) {
    EXPECT_EQ(algorithm(4, bytes, Pace::Slow), "smp-chain");
    // There every node more is a hop more for the last one.
    EXPECT_EQ(algorithm(5, bytes, Pace::Slow), "smp-binomial");
    EXPECT_EQ(algorithm(4, bytes, Pace::Fast), "smp-binomial");
    EXPECT_EQ(algorithm(4, bytes, Pace::Unknown), "smp-binomial");
  }
}

TEST(Selection, SendsLargeBlocksOfAlltoallsToHalfOfTheNodesAtOnce) {
  SelectionFacts facts;
  const auto ports = [&](int nodes, std::uint64_t bytes) {
    facts.nodes = facts.ranks = nodes;
    facts.bytes_per_rank = bytes;
    return select_rooted(Operation::Alltoall, facts).ports;
  };
  constexpr std::uint64_t kMebi = 1 << 20;
  EXPECT_EQ(ports(2, kMebi), 1);
  EXPECT_EQ(ports(3, kMebi), 2);
  EXPECT_EQ(ports(4, kMebi / 4), 3);
  EXPECT_EQ(ports(4, kMebi / 4 + 1), 2);
  EXPECT_EQ(ports(8, 2 * kMebi), 4);
  EXPECT_EQ(ports(8, 2 * kMebi + 1), 7);
  EXPECT_EQ(ports(64, kMebi), 8);
}

TEST(Selection, GoesStraightIntoBuffersFromSmallerBlocksOn) {
  SelectionFacts facts;
  facts.nodes = facts.ranks = 4;
  facts.zero_copy_threshold_bytes = kBufferThresholdBytes;
  facts.bytes_per_rank = kBufferThresholdBytes;
  EXPECT_EQ(select_allgather(facts).algorithm, "ring");
  facts.bytes_per_rank = kBufferThresholdBytes - 1;
  EXPECT_EQ(select_allgather(facts).algorithm, "smp-ring");
}

TEST(SingleCopyThreshold, IsWhereReadingSavesMost) {
  using Trials = std::vector<SingleCopyTrial>;
  EXPECT_EQ(single_copy_threshold({}), kSingleCopyThresholdBytes);
  EXPECT_EQ(single_copy_threshold(Trials{{64, 5, 9}, {256, 5, 9}}), 64U);
  EXPECT_EQ(single_copy_threshold(Trials{{64, 9, 5}, {256, 5, 9}, {1024, 5, 9}}), 256U);
  EXPECT_EQ(single_copy_threshold(Trials{{64, 9, 5}, {256, 9, 5}, {1024, 5, 9}}), 1024U);
  EXPECT_EQ(single_copy_threshold(Trials{{64, 9, 5}, {256, 5, 9}, {1024, 9, 9}}), 256U);
  EXPECT_EQ(single_copy_threshold(Trials{{64, 9, 5}}), 256U);
  EXPECT_EQ(single_copy_threshold(Trials{{64, 9, 9}}), 256U) << "saves nothing: copied";
  EXPECT_EQ(single_copy_threshold(Trials{{64, 0, 0}}), 256U);
}

TEST(SingleCopyThreshold, IsNotOutvotedByOneNoisyTrial) {
  using Trials = std::vector<SingleCopyTrial>;
  EXPECT_EQ(single_copy_threshold(Trials{{64, 7, 10}, {256, 8, 10}, {1024, 101, 100}}), 64U);
  EXPECT_EQ(single_copy_threshold(Trials{{64, 9, 10}, {256, 19, 10}, {1024, 19, 10}}), 4096U);
}

}  // namespace
}  // namespace allrail::coll
