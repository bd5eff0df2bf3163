// What allrail-bench takes and refuses, before anything is measured.
#include "perf/bench_options.hpp"

#include <string>
#include <vector>

#include <allrail/error.hpp>
#include <gtest/gtest.h>

namespace allrail::perf {
namespace {

using Sizes = std::vector<std::uint64_t>;

/// The exit code of this command line, or -1 where the program would go on.
int parse(std::vector<std::string> words, BenchOptions& options) {
  words.insert(words.begin(), "allrail-bench");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data(), options);
}

/// What it says of this command line; empty where it takes it.
std::string refusal(const std::vector<std::string>& words) {
  BenchOptions options;
  testing::internal::CaptureStderr();
  const int code = parse(words, options);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(code, 0) << words.front();
  return code < 0 ? "" : said;
}

TEST(BenchOptions, SizesAreAListOrARange) {
  EXPECT_EQ(parse_sizes("8,64K", 8), (Sizes{8, 64 << 10}));
  EXPECT_EQ(parse_sizes("8:1K", 8), (Sizes{8, 64, 512, 1024}));
  EXPECT_EQ(parse_sizes("0:4", 2), (Sizes{0, 1, 2, 4}));
  EXPECT_EQ(parse_sizes("4:4", 2), (Sizes{4}));
  for (const char* const wrong : {"", ",", "8,", ":", "8:", "16:8", "-1", "1T"}) {
    EXPECT_THROW(parse_sizes(wrong, 8), Error) << wrong;
  }
}

TEST(BenchOptions, ARangeEndsAtTheLargestNumber) {
  const Sizes sizes = parse_sizes("1:18446744073709551615", 2);
  ASSERT_EQ(sizes.size(), 65U);
  EXPECT_EQ(sizes[63], std::uint64_t{1} << 63);
  EXPECT_EQ(sizes[64], ~std::uint64_t{0});
  EXPECT_EQ(parse_sizes("8:16", ~std::uint64_t{0}), (Sizes{8, 16}));
}

TEST(BenchOptions, NothingToMeasureIsAnError) {
  EXPECT_NE(refusal({"gather", "--sizes", ""}).find("names no sizes"), std::string::npos);
  EXPECT_NE(refusal({"put", "--sizes", ""}).find("names no sizes"), std::string::npos);
  for (const char* const names : {"", "ring,", ",ring"}) {
    EXPECT_NE(refusal({"allgather", "--algorithm", names}).find("--algorithm"), std::string::npos);
  }
  EXPECT_NE(refusal({"tune", "t.json", "--collectives", ""}), "");
}

TEST(BenchOptions, ARailHasARate) {
  EXPECT_EQ(refusal({"gather", "--rail-rates", "500,250.5"}), "");
  EXPECT_NE(refusal({"gather", "--rail-rates", "500,0"}).find("--rail-rates"), std::string::npos);
}

TEST(BenchOptions, ABroadcastHasOneBuffer) {
  EXPECT_EQ(refusal({"gather", "--in-place"}), "");
  EXPECT_NE(refusal({"broadcast", "--in-place"}).find("--in-place"), std::string::npos);
}

TEST(BenchOptions, OnlyBlocksOfVFormsDiffer) {
  BenchOptions options;
  for (const char* const what : {"allgatherv", "gatherv", "scatterv", "alltoallv"}) {
    EXPECT_EQ(parse({what}, options), -1);
    EXPECT_EQ(options.blocks, BlockShape::Ramp);
    EXPECT_EQ(parse({what, "--blocks", "single"}, options), -1);
    EXPECT_EQ(options.blocks, BlockShape::Single);
    EXPECT_EQ(parse({what, "--blocks", "even"}, options), -1);
    EXPECT_EQ(options.blocks, BlockShape::Even);
    EXPECT_NE(refusal({what, "--blocks", "odd"}).find("--blocks"), std::string::npos);
  }
  for (const std::string what : {"allgather", "broadcast", "alltoall", "barrier", "put", "fit"}) {
    const std::string said = refusal({what, "--blocks", "ramp"});
    EXPECT_NE(said.find("--blocks: "), std::string::npos) << said;
    EXPECT_NE(said.find("only, not in " + what), std::string::npos) << said;
  }
  EXPECT_NE(refusal({"tune", "t.json", "--blocks", "even"}), "");
}

TEST(BenchOptions, AVFormHasWhatItsEvenFormHas) {
  BenchOptions options;
  EXPECT_EQ(even_form("alltoallv"), "alltoall");
  EXPECT_EQ(even_form("broadcast"), "broadcast");
  EXPECT_EQ(parse({"gatherv", "--algorithm", "all"}, options), -1);
  BenchOptions even;
  EXPECT_EQ(parse({"gather", "--algorithm", "all"}, even), -1);
  EXPECT_EQ(options.algorithms, even.algorithms);
  EXPECT_FALSE(even.algorithms.empty());
  EXPECT_EQ(parse({"allgatherv", "--memory", "node"}, options), -1);
  EXPECT_NE(refusal({"alltoallv", "--memory", "node"}).find("--memory"), std::string::npos);
  // A tuning file has one list for both forms.
  EXPECT_NE(refusal({"tune", "t.json", "--collectives", "gatherv"}), "");
}

TEST(BenchOptions, AMarginMayHaveAFraction) {
  BenchOptions options;
  EXPECT_EQ(parse({"tune", "t.json", "--margin", "2.5"}, options), -1);
  EXPECT_EQ(options.margin_percent, 2.5);
  EXPECT_NE(refusal({"tune", "t.json", "--margin", "100.5"}).find("--margin"), std::string::npos);
}

TEST(BenchOptions, ACollectiveIsTunedOnce) {
  EXPECT_EQ(refusal({"tune", "t.json", "--collectives", "gather,scatter"}), "");
  const std::string said = refusal({"tune", "t.json", "--collectives", "gather,scatter,gather"});
  EXPECT_NE(said.find("gather stands there twice"), std::string::npos) << said;
}

TEST(BenchOptions, PutsTakeNothingThatSaysHowCallsAreMade) {
  using Words = std::vector<std::string>;
  for (const char* const what : {"put", "fit"}) {
    EXPECT_EQ(refusal({what, "--iterations", "8"}), "");
    for (const Words& given :
         {Words{"--overlap"}, Words{"--algorithm", "auto"}, Words{"--memory", "buffer"},
          Words{"--mode", "isolated"}, Words{"--ports", "2"}, Words{"--leaders", "2"},
          Words{"--root", "1"}, Words{"--in-place"}}) {
      Words words{what};
      words.insert(words.end(), given.begin(), given.end());
      const std::string said = refusal(words);
      EXPECT_NE(said.find(given.front() + ": "), std::string::npos) << said;
      EXPECT_NE(said.find("not for " + std::string(what)), std::string::npos) << said;
    }
  }
}

TEST(BenchOptions, WhatSaysNothingIsRefused) {
  using Words = std::vector<std::string>;
  for (const Words& words :
       {Words{"allgather", "--root", "1"}, Words{"barrier", "--peer", "1"},
        Words{"gather", "--margin", "3"}, Words{"gather", "--collectives", "gather"},
        Words{"fit", "--sizes", "8"}, Words{"put", "--warmup", "8"}, Words{"put", "--no-check"},
        Words{"fit", "--rail-rates", "8"}, Words{"put", "--peer", "-7"},
        Words{"tune", "t.json", "--margin", "nan"}, Words{"gather", "--factor", "-1"},
        Words{"gather", "--skew", "1ms", "--seed", "-1"}}) {
    EXPECT_NE(
        refusal(words).find(words[words[0] == "tune" || words.size() > 4 ? words.size() - 2 : 1]),
        std::string::npos)
        << words[0] << ' ' << words[1] << ": " << refusal(words);
  }
  for (const char* const what : {"gather", "scatterv", "broadcast"}) {
    EXPECT_EQ(refusal({what, "--root", "1"}), "");
  }
  EXPECT_EQ(refusal({"put", "--peer", "1"}), "");
}

}  // namespace
}  // namespace allrail::perf
