// Whom a plan talks to: a connection each, so their number must not grow with the job.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "coll/plan.hpp"
#include "coll/selection.hpp"

namespace allrail::coll {
namespace {

constexpr int kNodes = 1000;
// The first, the last, and some in between: of every node of two ranks the leader and the other.
constexpr int kRanks[] = {0, 1, 2, 499, 500, 997, 998, 999, 1999};

class PlanPeers : public ::testing::Test {
 protected:
  /// Of one rank in an allgather of `bytes` by every rank, on nodes of `per_node` ranks.
  std::vector<int> of(int rank, const std::string& algorithm, int ports, int per_node,
                      std::uint64_t bytes) {
    if (node_of_.size() != static_cast<std::size_t>(kNodes * per_node)) {
      node_of_.clear();
      for (int i = 0; i < kNodes * per_node; ++i) node_of_.push_back(i / per_node);
    }
    const Roster roster(schedule::NodeMap(node_of_), rank);
    PlanRequest request;
    request.algorithm = algorithm;
    request.ports = ports;
    for (std::size_t i = 0; i < node_of_.size(); ++i) {
      request.bytes.push_back(bytes);
      request.receive_offsets.push_back(i * bytes);
    }
    const PlanLimits limits{64 << 20, kZeroCopyThresholdBytes};
    return CallPlan(request, roster, limits).peers();
  }

  std::vector<int> node_of_;
};

TEST_F(PlanPeers, OfARingAreTwoForEachPort) {
  for (const int per_node : {1, 2}) {
    for (const int ports : {1, 2, 3, 4}) {
      for (const int rank : kRanks) {
        if (rank >= kNodes * per_node) continue;
        const bool leads = rank % per_node == 0;
        const auto peers = of(rank, "smp-ring", ports, per_node, 1000);
        EXPECT_LE(peers.size(), leads ? 2U * static_cast<unsigned>(ports) : 0U)
            << "rank " << rank << ", " << ports << " ports, " << per_node << " ranks per node";
        EXPECT_GE(peers.size(), leads ? 2U : 0U) << "rank " << rank << ", " << ports << " ports";
      }
    }
  }
}

TEST_F(PlanPeers, OfTheNextSlicesAndOfZeroCopyAreTheSame) {
  const auto through_slots = of(500, "ring", 1, 1, 1000);
  EXPECT_EQ(through_slots, (std::vector<int>{499, 501}));
  EXPECT_EQ(of(500, "ring", 1, 1, kZeroCopyThresholdBytes), through_slots) << "straight";
  EXPECT_EQ(of(500, "ring", 1, 1, kZeroCopyThresholdBytes - 1), through_slots) << "in slices";
}

TEST_F(PlanPeers, OfWhatIsChosenAreTwoOrALogarithm) {
  for (const std::uint64_t bytes : {8ULL, 48ULL << 10U, 64ULL << 10U, 1ULL << 20U}) {
    SelectionFacts facts;
    facts.bytes_per_rank = bytes;
    facts.ranks = facts.nodes = kNodes;
    facts.rails = 2;
    const Selection chosen = select_allgather(facts);
    for (const int rank : {0, 1, 500, 999}) {
      // A put and an await in each of ten rounds, of two sizes of 1,000 nodes.
      EXPECT_LE(of(rank, chosen.algorithm, chosen.ports, 1, bytes).size(), 20U)
          << bytes << " bytes by " << chosen.algorithm;
    }
  }
}

}  // namespace
}  // namespace allrail::coll
