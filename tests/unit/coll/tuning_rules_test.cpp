// Which rule of a tuning file a call finds, and what the rule says of it.
#include "coll/tuning_rules.hpp"

#include <gtest/gtest.h>

namespace allrail::coll {
namespace {

/// Three nodes of two to four ranks, two rails.
SelectionFacts uneven_job(std::uint64_t bytes) {
  SelectionFacts facts;
  facts.bytes_per_rank = bytes;
  facts.ranks = 9;
  facts.nodes = 3;
  facts.smallest_node = 2;
  facts.largest_node = 4;
  facts.rails = 2;
  return facts;
}

TuningRule named(const char* algorithm) {
  TuningRule rule;
  rule.algorithm = algorithm;
  return rule;
}

TEST(TuningRules, ARuleWithoutConditionsFitsEveryCall) {
  EXPECT_TRUE(named("ring").fits(SelectionFacts()));
  EXPECT_TRUE(named("ring").fits(uneven_job(0)));
  EXPECT_TRUE(named("ring").fits(uneven_job(UINT64_MAX)));
}

TEST(TuningRules, BothEndsOfARangeBelongToIt) {
  TuningRule rule = named("ring");
  rule.bytes = {64, 4096};
  EXPECT_FALSE(rule.fits(uneven_job(63)));
  EXPECT_TRUE(rule.fits(uneven_job(64)));
  EXPECT_TRUE(rule.fits(uneven_job(4096)));
  EXPECT_FALSE(rule.fits(uneven_job(4097)));
}

TEST(TuningRules, EveryConditionCounts) {
  const auto fits_with = [](CountRange TuningRule::*member, CountRange range) {
    TuningRule rule = named("ring");
    rule.*member = range;
    return rule.fits(uneven_job(100));
  };
  EXPECT_TRUE(fits_with(&TuningRule::ranks, {9, 9}));
  EXPECT_FALSE(fits_with(&TuningRule::ranks, {10, 20}));
  EXPECT_TRUE(fits_with(&TuningRule::nodes, {3, 3}));
  EXPECT_FALSE(fits_with(&TuningRule::nodes, {1, 2}));
  EXPECT_TRUE(fits_with(&TuningRule::rails, {2, 2}));
  EXPECT_FALSE(fits_with(&TuningRule::rails, {1, 1}));
  EXPECT_TRUE(fits_with(&TuningRule::ranks_per_node, {2, 4}));
  EXPECT_FALSE(fits_with(&TuningRule::ranks_per_node, {3, 4})) << "one node has two ranks";
  EXPECT_FALSE(fits_with(&TuningRule::ranks_per_node, {2, 3})) << "one node has four ranks";
}

TEST(TuningRules, TheFirstOneThatFitsIsFound) {
  TuningRules rules;
  TuningRule small = named("smp-bruck");
  small.bytes.most = 1000;
  rules.of["allgather"] = {small, named("smp-ring"), named("direct")};
  EXPECT_EQ(rules.find(Operation::Allgather, uneven_job(1000))->algorithm, "smp-bruck");
  EXPECT_EQ(rules.find(Operation::Allgather, uneven_job(1001))->algorithm, "smp-ring");
}

TEST(TuningRules, CollectivesHaveTheirOwnAndVFormsThoseOfThePlainOne) {
  TuningRules rules;
  rules.of["gather"] = {named("binomial")};
  rules.of["alltoall"] = {};
  const SelectionFacts facts = uneven_job(8);
  EXPECT_EQ(rules.find(Operation::Allgather, facts), nullptr);
  EXPECT_EQ(rules.find(Operation::Scatter, facts), nullptr);
  EXPECT_EQ(rules.find(Operation::Alltoall, facts), nullptr);
  ASSERT_NE(rules.find(Operation::Gather, facts), nullptr);
  EXPECT_EQ(rules.find(Operation::Gatherv, facts), rules.find(Operation::Gather, facts));
}

TEST(TuningRules, WhatARuleDoesNotSayIsChosen) {
  TuningRule rule = named("smp-ring");
  rule.origin = "t.json:7";
  Selection selection = select_by_rule(rule, uneven_job(8), 3);
  EXPECT_EQ(selection.algorithm, "smp-ring");
  EXPECT_EQ(selection.ports, 2) << "as many as rails";
  EXPECT_EQ(selection.leaders, 3);
  EXPECT_NE(selection.reason.find("t.json:7"), std::string::npos);
  rule.ports = 5;
  rule.leaders = 1;
  selection = select_by_rule(rule, uneven_job(8), 3);
  EXPECT_EQ(selection.ports, 5);
  EXPECT_EQ(selection.leaders, 1);
}

}  // namespace
}  // namespace allrail::coll
