// Whom a rank tells of its memory before others put into it.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "coll/plan.hpp"
#include "coll/ready_token.hpp"

namespace allrail::coll {
namespace {

constexpr int kRanks = 4;
constexpr std::uint64_t kBlockBytes = 1 << 20;

/// The other ends of the tokens that rank 1 puts or awaits in a call straight between user buffers
/// of four nodes.
std::vector<int> token_peers(Operation operation, const std::string& algorithm,
                             schedule::StepKind kind) {
  const Roster roster(schedule::NodeMap({0, 1, 2, 3}), 1);
  PlanRequest request;
  request.operation = operation;
  request.algorithm = algorithm;
  if (operation == Operation::Gather) request.root = 0;
  request.bytes.assign(kRanks, kBlockBytes);
  for (std::uint64_t rank = 0; rank < kRanks; ++rank) {
    request.receive_offsets.push_back(rank * kBlockBytes);
  }
  PlanLimits limits{64 << 10, kBlockBytes};
  limits.rooted_threshold_bytes = kBlockBytes;
  const CallPlan plan(request, roster, limits);
  EXPECT_TRUE(plan.zero_copy());
  std::vector<int> peers;
  for (const schedule::Step& step : plan.first().steps) {
    if (step.kind == kind && step.bytes == kTokenBytes) peers.push_back(step.peer);
  }
  std::ranges::sort(peers);
  return peers;
}

TEST(ReadyTokens, OfARingGoToWhoPutsAndComeFromWhoIsPutTo) {
  using schedule::StepKind;
  EXPECT_EQ(token_peers(Operation::Allgather, "ring", StepKind::Put), std::vector<int>{0});
  EXPECT_EQ(token_peers(Operation::Allgather, "ring", StepKind::Await), std::vector<int>{2});
}

TEST(ReadyTokens, OfADirectExchangeGoToAllAndComeFromAll) {
  using schedule::StepKind;
  const std::vector<int> others = {0, 2, 3};
  EXPECT_EQ(token_peers(Operation::Allgather, "direct", StepKind::Put), others);
  EXPECT_EQ(token_peers(Operation::Allgather, "direct", StepKind::Await), others);
}

TEST(ReadyTokens, OfAGatherGoBothWays) {
  using schedule::StepKind;
  EXPECT_EQ(token_peers(Operation::Gather, "direct", StepKind::Put), std::vector<int>{0});
  EXPECT_EQ(token_peers(Operation::Gather, "direct", StepKind::Await), std::vector<int>{0});
}

}  // namespace
}  // namespace allrail::coll
