// From times to rules: who wins where, where ranges end, and that noise makes no rules.
#include "perf/tuned_rules.hpp"

#include <limits>

#include <gtest/gtest.h>

#include "lib/tuning_file.hpp"

namespace allrail::perf {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
const std::vector<std::uint64_t> kSizes = {8, 64, 512, 4096};

/// "name 0-1, other 2-3": the ranges in one text.
std::string text_of(const std::vector<Candidate>& candidates, double margin = 0.05) {
  std::string text;
  for (const TunedRange& range : choose_ranges(candidates, margin)) {
    text += (text.empty() ? "" : ", ") + candidates[range.candidate].algorithm + " " +
            std::to_string(range.first) + "-" + std::to_string(range.last);
  }
  return text;
}

TEST(TunedRules, TheFastestWinsWhereItIsFastest) {
  EXPECT_EQ(text_of({{"ring", 1, {9, 9, 9, 9}}, {"bruck", 1, {1, 2, 20, 40}}}),
            "bruck 0-1, ring 2-3");
  EXPECT_EQ(text_of({{"ring", 1, {9, 9, 9, 9}}}), "ring 0-3");
  EXPECT_EQ(text_of({{"a", 1, {1, 9, 9, 9}},
                     {"b", 1, {9, 1, 9, 9}},
                     {"c", 1, {9, 9, 1, 9}},
                     {"d", 1, {9, 9, 9, 1}}}),
            "a 0-0, b 1-1, c 2-2, d 3-3");
}

TEST(TunedRules, ADifferenceWithinTheMarginMakesNoRule) {
  const std::vector<Candidate> close = {{"ring", 1, {10.4, 10, 10.4, 10}},
                                        {"bruck", 1, {10, 10.4, 10, 10.45}}};
  EXPECT_EQ(text_of(close), "ring 0-3") << "slower by less on the whole";
  EXPECT_EQ(text_of(close, 0), "bruck 0-0, ring 1-1, bruck 2-2, ring 3-3");
  EXPECT_EQ(text_of({{"ring", 1, {10, 10, 10, 10}}, {"bruck", 1, {10, 9, 10, 10}}}), "bruck 0-3")
      << "one rule instead of two or three";
  EXPECT_EQ(text_of({{"ring", 1, {9, 10, 10, 9.9}}, {"bruck", 1, {10, 9, 10, 10}}}),
            "ring 0-0, bruck 1-3")
      << "more than the margin: the other one wins there, and goes on where both are alike";
}

TEST(TunedRules, NobodyIsChosenForWhatWasNotMeasured) {
  EXPECT_EQ(text_of({{"ring", 1, {9, 9, 9, 9}}, {"ring", 3, {kNever, kNever, 1, 1}}}),
            "ring 0-1, ring 2-3");
  EXPECT_TRUE(choose_ranges({}, 0.05).empty());
}

ByteRange bytes(std::size_t first, std::size_t last,
                const std::vector<std::uint64_t>& sizes = kSizes) {
  return bytes_of({0, first, last}, sizes);
}

TEST(TunedRules, RangesMeetAtTheGeometricMeanOfNeighbours) {
  EXPECT_EQ(bytes(0, 0).most, 22U);  // sqrt(8 * 64) = 22.6
  EXPECT_EQ(bytes(1, 2).least, 23U);
  EXPECT_EQ(bytes(1, 2).most, 1448U);  // sqrt(512 * 4096) = 1448.2
  EXPECT_EQ(bytes(3, 3).least, 1449U);
  EXPECT_EQ(bytes(0, 0, {8, 9}).most, 8U);
  EXPECT_EQ(bytes(1, 1, {8, 9}).least, 9U);
  EXPECT_EQ(bytes(0, 0, {0, 1}).most, 0U);
  EXPECT_EQ(bytes(1, 1, {0, 1}).least, 1U);
  constexpr std::uint64_t kLarge = 1ULL << 40;
  EXPECT_EQ(bytes(0, 0, {kLarge, 4 * kLarge}).most, 2 * kLarge);
}

TEST(TunedRules, NothingIsSaidOfLargerCallsThanWereMeasuredOrOfMuchSmallerOnes) {
  EXPECT_EQ(bytes(3, 3).most, 4096U);
  EXPECT_EQ(bytes(0, 3).least, 0U);
  EXPECT_EQ(bytes(0, 1, {64, 128}).least, 0U);
  EXPECT_EQ(bytes(0, 1, {65, 128}).least, 65U);
}

TEST(TunedRules, TheTextIsATuningFileThatChoosesThem) {
  const std::vector<TunedCollective> tuned = {
      {"allgather",
       kSizes,
       {{"smp-bruck", 2, {1, 2, 3, 4}}, {"ring", 1, {4, 3, 2, 1}}},
       {{0, 0, 1}, {1, 2, 3}}},
      {"gather", kSizes, {{"binomial", 1, {1, 1, 1, 1}}}, {{0, 0, 3}}},
      {"scatter", kSizes, {}, {}}};
  const Layout layout{7, 3, 2, 3, 2};
  const auto file =
      parse_tuning_file(tuning_text(tuned, layout, 4, {}, "say \"so\"\n\xFF"), "t.json");
  EXPECT_FALSE(file.model.has_value());
  diagnostics::CostModel model;
  model.rail_MBps = {12.5, 0.25};
  const auto with_model = parse_tuning_file(tuning_text(tuned, layout, 4, model, ""), "t.json");
  ASSERT_TRUE(with_model.model.has_value());
  EXPECT_EQ(with_model.model->rail_MBps, model.rail_MBps);
  EXPECT_EQ(with_model.rule_count(), file.rule_count());
  coll::SelectionFacts facts;
  facts.ranks = 7;
  facts.nodes = 3;
  facts.smallest_node = 2;
  facts.largest_node = 3;
  facts.rails = 2;
  const auto rule_for = [&](coll::Operation operation, std::uint64_t size) {
    facts.bytes_per_rank = size;
    return file.rules.find(operation, facts);
  };
  using coll::Operation;
  for (const std::uint64_t size : {0, 64, 512, 4096}) {
    const auto* rule = rule_for(Operation::Allgather, size);
    ASSERT_NE(rule, nullptr) << size;
    EXPECT_EQ(rule->algorithm, size <= 64 ? "smp-bruck" : "ring") << size;
    EXPECT_EQ(rule->ports, size <= 64 ? 2 : 1) << size;
    EXPECT_EQ(rule->leaders, 4) << size;
  }
  EXPECT_EQ(rule_for(Operation::Allgather, 4097), nullptr);
  ASSERT_NE(rule_for(Operation::Gather, 100), nullptr);
  EXPECT_EQ(rule_for(Operation::Gather, 100)->leaders, 0)
      << "only allgathers and alltoalls have leaders";
  EXPECT_EQ(rule_for(Operation::Scatter, 100), nullptr);
  facts.ranks = 8;
  EXPECT_EQ(rule_for(Operation::Gather, 100), nullptr) << "another layout";
}

}  // namespace
}  // namespace allrail::perf
