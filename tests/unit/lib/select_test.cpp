// Who decides on the algorithm of a call: its own words, a setting, a rule, the built-in table.
#include "lib/select.hpp"

#include <gtest/gtest.h>

namespace allrail {
namespace {

constexpr int kRails = 2;
constexpr std::uint64_t kBytes = 4096;

class Select : public testing::Test {
 protected:
  Select() {
    coll::TuningRule rule;
    rule.bytes = {kBytes, kBytes};
    rule.origin = "t.json:3";
    rule.algorithm = "smp-direct";
    rule.ports = 3;
    rule.leaders = 2;
    rules_.of["allgather"] = {rule};
    rule.algorithm = "binomial";
    rule.leaders = 0;
    rules_.of["gather"] = {rule};
  }

  coll::Selection allgather(std::uint64_t bytes = kBytes,
                            coll::MemoryKind memory = coll::MemoryKind::Ordinary) const {
    return select_for(coll::Operation::Allgather, roster_, kRails,
                      {settings_, rules_, model_.get()}, {bytes}, call_, memory);
  }
  coll::Selection rooted(coll::Operation operation, std::uint64_t bytes = kBytes) const {
    return select_for(operation, roster_, kRails, {settings_, rules_, model_.get()}, {bytes},
                      call_);
  }
  static bool by_rule(const coll::Selection& selection) {
    return selection.reason.find("t.json:3") != std::string::npos;
  }

  const coll::Roster roster_{schedule::NodeMap(std::vector<int>{0, 0, 1, 1, 2, 2}), 0};
  Options settings_;
  CallOptions call_;
  coll::TuningRules rules_;
  std::unique_ptr<ModelChoice> model_;
};

TEST_F(Select, ARuleGoesBeforeTheBuiltInTable) {
  EXPECT_EQ(allgather().algorithm, "smp-direct");
  EXPECT_EQ(allgather().ports, 3);
  EXPECT_EQ(allgather().leaders, 2);
  EXPECT_TRUE(by_rule(allgather()));
  EXPECT_EQ(rooted(coll::Operation::Gather).algorithm, "binomial");
  EXPECT_TRUE(by_rule(rooted(coll::Operation::Gatherv)));
}

TEST_F(Select, WhereNoRuleFitsTheTableDecides) {
  const coll::TuningRules none;
  for (const std::uint64_t bytes : {kBytes - 1, kBytes + 1}) {
    const auto expected =
        select_for(coll::Operation::Allgather, roster_, kRails, {settings_, none}, {bytes}, call_);
    EXPECT_EQ(allgather(bytes).algorithm, expected.algorithm);
    EXPECT_EQ(allgather(bytes).reason, expected.reason);
    EXPECT_FALSE(by_rule(allgather(bytes)));
  }
  EXPECT_FALSE(by_rule(rooted(coll::Operation::Scatter)));
  EXPECT_FALSE(by_rule(rooted(coll::Operation::Gather, kBytes - 1)));
}

TEST_F(Select, AModelIsAskedBetweenRulesAndTable) {
  const auto by_model = [](const coll::Selection& selection) {
    return selection.reason.starts_with("by the cost model in t.json");
  };
  TuningFile file;
  file.path = "t.json";
  file.model.emplace();
  model_ = ModelChoice::of(file, settings_, roster_, kRails);
  EXPECT_TRUE(by_rule(allgather()));
  EXPECT_TRUE(by_model(allgather(kBytes + 1)));
  EXPECT_TRUE(by_model(rooted(coll::Operation::Scatter)));
  EXPECT_TRUE(by_rule(rooted(coll::Operation::Gather)));
  EXPECT_FALSE(by_model(allgather(kBytes + 1, coll::MemoryKind::NodeBuffer)));
  // It knows blocks of one size only.
  Choosers choosers{settings_, rules_, model_.get()};
  const auto differing = [&] {
    return select_for(coll::Operation::Allgatherv, roster_, kRails, choosers, {kBytes + 1, true},
                      call_);
  };
  EXPECT_EQ(differing().algorithm, "smp-ring-chain");
  choosers.pace = transport::Pace::Fast;
  EXPECT_TRUE(by_model(differing()));
  settings_.leaders = 2;
  call_.ports = 5;
  EXPECT_TRUE(by_model(allgather(kBytes + 1)));
  EXPECT_EQ(allgather(kBytes + 1).leaders, 2);
  EXPECT_EQ(allgather(kBytes + 1).ports, 5);
  settings_.algorithms = {{"scatter", "direct"}};
  EXPECT_FALSE(by_model(rooted(coll::Operation::Scatter)));
  call_.algorithm = "smp-ring";
  EXPECT_FALSE(by_model(allgather(kBytes + 1)));
}

TEST_F(Select, ASettingGoesBeforeARule) {
  settings_.algorithms = {{"allgather", "smp-ring"}, {"gather", "direct"}};
  EXPECT_EQ(allgather().algorithm, "smp-ring");
  EXPECT_EQ(allgather().ports, kRails) << "the ports of a rule that is not asked do not count";
  EXPECT_EQ(allgather().leaders, 1);
  EXPECT_EQ(rooted(coll::Operation::Gather).algorithm, "direct");
  EXPECT_FALSE(by_rule(rooted(coll::Operation::Gather)));
}

TEST_F(Select, TheCallGoesBeforeEverything) {
  settings_.algorithms = {{"allgather", "smp-ring"}, {"gather", "direct"}};
  call_.algorithm = "smp-bruck";
  EXPECT_EQ(allgather().algorithm, "smp-bruck");
  call_.algorithm = "smp-direct";
  EXPECT_EQ(rooted(coll::Operation::Gather).algorithm, "smp-direct");
}

TEST_F(Select, PortsAndLeadersOfSettingsAndCallGoBeforeThoseOfARule) {
  settings_.ports = 4;
  settings_.leaders = 1;
  EXPECT_TRUE(by_rule(allgather()));
  EXPECT_EQ(allgather().ports, 4);
  EXPECT_EQ(allgather().leaders, 1);
  EXPECT_EQ(rooted(coll::Operation::Gather).ports, 4);
  call_.ports = 6;
  call_.leaders = 2;
  EXPECT_EQ(allgather().ports, 6);
  EXPECT_EQ(allgather().leaders, 2);
  EXPECT_EQ(rooted(coll::Operation::Gather).ports, 6);
}

TEST_F(Select, SeveralLeadersOfAlltoallsAreAskedForAndOthersHaveOne) {
  EXPECT_EQ(rooted(coll::Operation::Alltoall).leaders, 1);
  settings_.leaders = 2;
  EXPECT_EQ(rooted(coll::Operation::Alltoall).leaders, 2);
  EXPECT_EQ(rooted(coll::Operation::Gather).leaders, 1);
  call_.leaders = 1;
  EXPECT_EQ(rooted(coll::Operation::Alltoallv).leaders, 1);
  call_.leaders = 40;
  EXPECT_EQ(rooted(coll::Operation::Alltoallv).leaders, 2) << "a node has no more ranks";
  rules_.of["alltoall"] = rules_.of["allgather"];
  settings_.leaders = call_.leaders = 0;
  EXPECT_EQ(rooted(coll::Operation::Alltoall).leaders, 2);
}

TEST_F(Select, LeadersOfARuleAreNoMoreThanTheLargestNodeHasRanks) {
  rules_.of["allgather"][0].leaders = 40;
  EXPECT_EQ(allgather().leaders, 2);
}

TEST_F(Select, AnAlgorithmOverRanksIsTakenOverNodesIntoANodeBufferAndSaysSo) {
  rules_.of["allgather"][0].algorithm = "ring";
  EXPECT_EQ(allgather().algorithm, "ring");
  const auto selection = allgather(kBytes, coll::MemoryKind::NodeBuffer);
  EXPECT_EQ(selection.algorithm, "smp-ring");
  EXPECT_TRUE(by_rule(selection));
  EXPECT_NE(selection.reason.find("ring over nodes"), std::string::npos) << selection.reason;
}

TEST_F(Select, BarriersAreNotAskedAbout) {
  rules_.of["allgather"][0].bytes = {};
  EXPECT_FALSE(by_rule(select_for_allocation(roster_, kRails)));
}

TEST(BlockSizesOf, SaysWhetherBlocksOfAnAllgathervDifferMuch) {
  constexpr std::uint64_t kMebi = 1 << 20;
  const coll::Roster three(schedule::NodeMap(std::vector<int>{0, 1, 2}), 0);
  const coll::Roster two(schedule::NodeMap(std::vector<int>{0, 1, 1}), 0);
  coll::PlanRequest request;
  request.operation = coll::Operation::Allgatherv;
  request.bytes = {0, 4 * kMebi, 0};
  const auto pays = [&](const coll::Roster& roster) {
    return block_sizes_of(request, roster).pays_to_cut;
  };
  EXPECT_TRUE(pays(three));
  EXPECT_EQ(block_sizes_of(request, three).largest_bytes, 4 * kMebi);
  request.memory = coll::MemoryKind::Buffer;
  EXPECT_TRUE(pays(three));
  request.memory = coll::MemoryKind::NodeBuffer;
  EXPECT_FALSE(pays(three)) << "what a node shares is not cut";
  request.memory = coll::MemoryKind::Ordinary;
  EXPECT_FALSE(pays(two)) << "two nodes";
  request.operation = coll::Operation::Gatherv;
  EXPECT_FALSE(pays(three));
  request.operation = coll::Operation::Allgatherv;
  request.bytes = {4 * kMebi, 4 * kMebi, 3 * kMebi};
  EXPECT_FALSE(pays(three)) << "not much";
  request.bytes = {0, 0, 0};
  EXPECT_FALSE(pays(three));
  request.bytes = {0, 4096, 0};
  EXPECT_FALSE(pays(three)) << "few bytes";
  request.bytes = {4 * kMebi};
  EXPECT_FALSE(pays(three)) << "the blocks of all ranks are not known";
}

}  // namespace
}  // namespace allrail
