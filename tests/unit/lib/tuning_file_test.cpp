// Tuning files: what is read, and that every error names its line and what is allowed.
#include "lib/tuning_file.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "coll/recipe.hpp"
#include "include/allrail/error.hpp"

namespace allrail {
namespace {

using coll::Operation;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A file of this repository's docs/.
std::filesystem::path document(const char* name) {
  const char* folder = std::getenv("ALLRAIL_TEST_DOCUMENTS");
  return std::filesystem::path(folder == nullptr ? "docs" : folder) / name;
}

/// What a file with these contents is refused with, or "" if it is taken.
std::string refusal(const std::string& contents) {
  try {
    parse_tuning_file(contents, "t.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::BadConfiguration);
    return error.what();
  }
  return "";
}

/// A file of one allgather rule, which begins in line 5.
std::string with_rule(const std::string& rule, const std::string& collective = "allgather") {
  return fmt::format("{{\n \"format\": 1,\n \"rules\": {{\n  \"{}\": [\n{}\n]}}}}", collective,
                     rule);
}

TEST(TuningFile, ReadsEveryKey) {
  const auto file = parse_tuning_file(R"({
    "$schema": "tuning.schema.json", "comment": "of a test", "format": 1,
    "rules": {
      "allgather": [
        {"bytes": {"min": 64, "max": "4K"}, "ranks": 8, "nodes": {"min": 2},
         "ranks_per_node": {"max": 4}, "rails": {"min": 1, "max": 2}, "comment": "x",
         "algorithm": "smp-ring", "ports": 3, "leaders": 2},
        {"bytes": "1M", "algorithm": "ring"}
      ],
      "broadcast": [{"algorithm": "chain"}],
      "scatter": []
    }
  })",
                                      "a/t.json");
  EXPECT_EQ(file.path, "a/t.json");
  EXPECT_EQ(file.rule_count(), 3U);
  const auto& rules = file.rules.of.at("allgather");
  ASSERT_EQ(rules.size(), 2U);
  EXPECT_EQ(rules[0].bytes.least, 64U);
  EXPECT_EQ(rules[0].bytes.most, 4096U);
  EXPECT_EQ(rules[0].ranks.least, 8U);
  EXPECT_EQ(rules[0].ranks.most, 8U);
  EXPECT_EQ(rules[0].nodes.least, 2U);
  EXPECT_EQ(rules[0].nodes.most, UINT64_MAX);
  EXPECT_EQ(rules[0].ranks_per_node.least, 0U);
  EXPECT_EQ(rules[0].ranks_per_node.most, 4U);
  EXPECT_EQ(rules[0].rails.most, 2U);
  EXPECT_EQ(rules[0].algorithm, "smp-ring");
  EXPECT_EQ(rules[0].ports, 3);
  EXPECT_EQ(rules[0].leaders, 2);
  EXPECT_EQ(rules[0].origin, "a/t.json:5");
  EXPECT_EQ(rules[1].bytes.least, 1024U * 1024);
  EXPECT_EQ(rules[1].bytes.most, 1024U * 1024);
  EXPECT_EQ(rules[1].ports, 0);
  EXPECT_EQ(rules[1].origin, "a/t.json:8");
  EXPECT_EQ(file.rules.of.at("broadcast")[0].algorithm, "chain");
}

TEST(TuningFile, TakesARuleWithoutRules) {
  EXPECT_EQ(refusal(R"({"format": 1, "rules": {}})"), "");
  EXPECT_EQ(refusal(R"({"rules": {"gather": []}, "format": 1})"), "");
  EXPECT_EQ(refusal("\xEF\xBB\xBF" + with_rule(R"({"algorithm": "ring"})")), "")
      << "with a byte order mark";
  EXPECT_EQ(refusal("{\r\n\"format\": 1,\r\n\"rules\": {}\r\n}\r\n"), "");
}

struct Refused {
  std::string contents;
  int line;
  std::vector<const char*> words;
};

void check(const std::vector<Refused>& cases) {
  for (const Refused& one : cases) {
    const std::string text = refusal(one.contents);
    const std::string place = fmt::format("ALLRAIL_TUNING_FILE: t.json:{}: ", one.line);
    EXPECT_TRUE(text.starts_with(place)) << one.contents << "\nis refused with: " << text;
    for (const char* word : one.words) {
      EXPECT_NE(text.find(word), std::string::npos)
          << word << " is not in: " << text << "\nof: " << one.contents;
    }
  }
}

TEST(TuningFile, NamesTheLineOfWhatIsNoJson) {
  check({
      {"", 1, {"no JSON"}},
      {"\n\n", 2, {"no JSON"}},
      {"{\n\"format\": 1\n\"rules\": {}}", 3, {"no JSON", "string literal", "expected '}'"}},
      {"{\n\"format\": 1,\n}", 3, {"no JSON"}},
      {"{\n\"format\": 1, // one\n\"rules\": {}}", 2, {"no JSON"}},
      {"{\n\"format\": 01}", 2, {"no JSON"}},
      {"{\"format\":\n1e999}", 2, {"no JSON"}},
      {"{\"format\": 1, \"rules\": {\n}}\n\nx", 4, {"no JSON"}},
      {"{\"format\": 1,\n\"rules\": {\"gather\n\": []}}", 2, {"no JSON"}},
      {"{\"format\": 1,\n\"comment\": \"\xFF\"}", 2, {"no JSON"}},
      {"{\"format\": 1,\n\"rules\":", 2, {"no JSON"}},
      {"{\"format\": 1,\n\"format\": 1}", 2, {"'format'", "twice"}},
      {"{\"format\": 1,\n\"rules\": " + std::string(50, '['), 2, {"nested"}},
  });
}

TEST(TuningFile, NamesTheLineOfTheWrongFrame) {
  check({
      {"\n[]", 2, {"a list", "an object", "format, comment, rules"}},
      {"7\n", 1, {"the number 7"}},
      {"\n{\"rules\": {}}", 2, {"needs 'format'"}},
      {"\n{\"format\": 1}", 2, {"needs 'rules'"}},
      {"{\"rules\": {},\n \"format\":\n 2\n}", 3, {"the number 2", "reads 1"}},
      {"{\"rules\": {},\n \"format\": \"1\"}", 2, {"the text '1'"}},
      {"{\"format\": 1,\n\"rules\": {},\n\"version\":\n1}", 3, {"no 'version'", "allowed are"}},
      {"{\"format\": 1,\n\"rules\": []}", 2, {"a list", "an object", "allgather", "alltoall"}},
      {"{\"format\": 1,\n\"comment\": 3, \"rules\": {}}", 2, {"'comment'", "a text"}},
      {"{\"format\": 1, \"rules\": {},\n\"$schema\": null}", 2, {"'$schema'", "null"}},
      {"{\"format\": 1, \"rules\": {\n\"allreduce\":\n[]}}",
       2,
       {"no collective 'allreduce'", "allgather", "gather", "scatter", "broadcast", "alltoall"}},
      {"{\"format\": 1, \"rules\": {\n\"gather\": {}}}", 2, {"gather", "an object", "a list"}},
      {"{\"format\": 1, \"rules\": {\"gather\": [\n7]}}", 2, {"a rule", "the number 7"}},
  });
}

TEST(TuningFile, NamesTheLineOfWhatIsWrongInARule) {
  check({
      {with_rule("{\n\"algorithm\": \"brook\"}"), 6, {"'brook'", "allgather", "smp-ring", "bruck"}},
      {with_rule(R"({"algorithm": "ring"})", "gather"), 5, {"no gather algorithm 'ring'"}},
      {with_rule("{\n\"algorithm\":\n\ntrue}"), 8, {"'algorithm'", "true", "smp-ring"}},
      {with_rule("{\"nodes\": 1\n}"), 5, {"needs 'algorithm'"}},
      {with_rule("{\"algorithm\": \"ring\",\n\"byte\":\n1}"), 6, {"no 'byte'", "bytes, ranks"}},
      {with_rule("{\"algorithm\": \"ring\",\n\"comment\": 1}"), 6, {"'comment'", "a text"}},
      {with_rule("{\"algorithm\": \"direct\",\n\"leaders\": 2}", "gather"),
       6,
       {"gather", "'leaders'", "only allgathers"}},
  });
}

TEST(TuningFile, NamesTheLineOfAWrongNumber) {
  const auto rule = [](const std::string& member) {
    return with_rule("{\"algorithm\": \"ring\",\n" + member + "\n}");
  };
  check({
      {rule("\"ranks\": 0"), 6, {"'ranks'", "the number 0", "from 1"}},
      {rule("\"ranks\": -3"), 6, {"'ranks'", "-3"}},
      {rule("\"nodes\": 1.5"), 6, {"'nodes'", "1.5", "whole numbers"}},
      {rule("\"nodes\": \"2\""), 6, {"'nodes'", "the text '2'"}},
      {rule("\"nodes\": 99999999999"), 6, {"'nodes'", "99999999999"}},
      {rule("\"rails\": 65"), 6, {"'rails'", "from 1 to 64"}},
      {rule("\"bytes\": \"64Q\""), 6, {"'bytes'", "64Q", "\"64K\""}},
      {rule("\"bytes\": 18446744073709551616"), 6, {"'bytes'"}},
      {rule("\"bytes\": [1, 2]"), 6, {"'bytes'", "a list", "'min'"}},
      {rule("\"ranks_per_node\": null"), 6, {"'ranks_per_node'", "null"}},
      {rule("\"bytes\": {}"), 6, {"'bytes'", "'min', 'max' or both"}},
      {rule("\"bytes\": {\"min\": 1,\n\"most\": 3}"), 7, {"'most'", "min, max"}},
      {rule("\"bytes\": {\"min\": 1,\n\"max\": {}}"), 7, {"'max' of 'bytes'", "an object"}},
      {rule("\"nodes\": {\n\"min\": 4,\n\"max\": 2}"), 6, {"'nodes'", "is 4", "is 2"}},
      {rule("\"bytes\": {\"min\": \"1K\", \"max\": 1023}"), 6, {"'bytes'", "1024", "1023"}},
      {rule("\"ports\": 0"), 6, {"'ports'", "1 to 64"}},
      {rule("\"ports\": 65"), 6, {"'ports'", "1 to 64"}},
      {rule("\"ports\": {\"min\": 1}"), 6, {"'ports'", "an object", "1 to 64"}},
      {rule("\"leaders\": \"all\""), 6, {"'leaders'", "the text 'all'", "1 to 64"}},
  });
}

TEST(TuningFile, MessagesAreOneLineAndNotLongerThanACard) {
  const std::string name(100'000, 'a');
  for (const std::string& contents :
       {with_rule("{\"algorithm\": \"" + name + "\"}"), with_rule("{\"" + name + "\": 1}"),
        with_rule("{\"algorithm\": \"a\\nb\\u0007\"}"), "{\"" + name, with_rule(name)}) {
    const std::string text = refusal(contents);
    EXPECT_FALSE(text.empty());
    EXPECT_LT(text.size(), 1000U);
    EXPECT_EQ(text.find_first_of("\n\a"), std::string::npos) << text;
  }
}

TEST(TuningFile, TheFingerprintIsThatOfTheContents) {
  const std::string contents = with_rule(R"({"algorithm": "ring"})");
  const auto file = parse_tuning_file(contents, "one.json");
  EXPECT_EQ(file.fingerprint, parse_tuning_file(contents, "other/two.json").fingerprint);
  EXPECT_NE(file.fingerprint, parse_tuning_file(contents + "\n", "one.json").fingerprint);
  EXPECT_NE(file.fingerprint,
            parse_tuning_file(with_rule(R"({"algorithm": "bruck"})"), "one.json").fingerprint);
  EXPECT_NE(file.fingerprint, TuningFile().fingerprint);
  EXPECT_EQ(read_tuning_file("").fingerprint, TuningFile().fingerprint);
}

class TuningFileOnDisk : public testing::Test {
 protected:
  TuningFileOnDisk() {
    std::string name = (std::filesystem::temp_directory_path() / "allrail-test-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~TuningFileOnDisk() override { std::filesystem::remove_all(folder_); }

  /// What reading this path is refused with.
  static std::string refusal_of(const std::filesystem::path& path) {
    try {
      read_tuning_file(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::BadConfiguration);
      EXPECT_NE(std::string(error.what()).find("ALLRAIL_TUNING_FILE is '" + path.string() + "'"),
                std::string::npos)
          << error.what();
      return error.what();
    }
    return "";
  }

  std::filesystem::path folder_;
};

TEST_F(TuningFileOnDisk, IsRead) {
  std::ofstream(folder_ / "t.json") << with_rule(R"({"algorithm": "ring"})");
  const auto file = read_tuning_file(folder_ / "t.json");
  EXPECT_EQ(file.rule_count(), 1U);
  EXPECT_EQ(file.rules.of.at("allgather")[0].origin, (folder_ / "t.json").string() + ":5");
}

TEST_F(TuningFileOnDisk, MustBeAFileThatCanBeRead) {
  EXPECT_NE(refusal_of(folder_ / "none.json").find("No such file"), std::string::npos);
  EXPECT_NE(refusal_of(folder_).find("no regular file"), std::string::npos);
  EXPECT_NE(refusal_of("/dev/zero").find("no regular file"), std::string::npos);
  std::ofstream(folder_ / "long.json") << std::string((1 << 20) + 1, ' ');
  EXPECT_NE(refusal_of(folder_ / "long.json").find("longer than 1M"), std::string::npos);
}

TEST(TuningDocuments, TheExampleIsTaken) {
  const std::string page = text_of(document("tuning.md"));
  const auto begin = page.find("```json\n") + 8;
  const auto end = page.find("```", begin);
  ASSERT_NE(end, std::string::npos);
  EXPECT_EQ(refusal(page.substr(begin, end - begin)), "");
}

TEST(TuningDocuments, TheSchemaNamesTheAlgorithmsThereAre) {
  const auto schema = nlohmann::json::parse(text_of(document("tuning.schema.json")));
  const auto& collectives = schema.at("properties").at("rules").at("properties");
  EXPECT_EQ(collectives.size(), std::size(coll::kCollectives));
  for (const Operation operation : coll::kCollectives) {
    const std::string collective = coll::collective_name(operation);
    const auto& properties = collectives.at(collective).at("items").at("properties");
    std::set<std::string> names;
    for (const auto name : coll::algorithm_names(operation)) names.emplace(name);
    EXPECT_EQ(properties.at("algorithm").at("enum").get<std::set<std::string>>(), names)
        << collective;
    const bool may_have_leaders =
        refusal(with_rule("{\"algorithm\": \"direct\", \"leaders\": 2}", collective)) == "";
    if (collective == "broadcast") continue;  // has no "direct"
    EXPECT_EQ(!properties.contains("leaders"), may_have_leaders) << collective;
  }
}

TEST(TuningDocuments, TheSchemaNamesTheKeysThereAre) {
  const auto schema = nlohmann::json::parse(text_of(document("tuning.schema.json")));
  std::string of_rules;
  for (const auto& [key, value] : schema.at("$defs").at("rule").at("properties").items()) {
    // Of a key that there is the value is refused, of any other the key.
    EXPECT_EQ(refusal(with_rule("{\"algorithm\": \"ring\", \"" + key + "\": [[]]}"))
                  .find("has no '" + key),
              std::string::npos)
        << key;
    of_rules += key + " ";
  }
  // Whatever is allowed stands in the message that lists it.
  const std::string message = refusal(with_rule("{\"algorithm\": \"ring\", \"x\": 1}"));
  const auto list = message.find("allowed are: ") + 13;
  std::istringstream words(message.substr(list));
  for (std::string word; words >> word;) {
    if (word.ends_with(',')) word.pop_back();
    EXPECT_NE(of_rules.find(word + " "), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace allrail
