// The text of a tuning file: it is refused with a line that the text has, or every rule says what a
// call can do and is found by the calls that it is for.
#include <algorithm>
#include <string>

#include "coll/recipe.hpp"
#include "include/allrail/error.hpp"
#include "lib/base/parse.hpp"
#include "lib/tuning_file.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace allrail::fuzz {
namespace {

constexpr std::string_view kPlace = "ALLRAIL_TUNING_FILE: t.json:";

/// The line in "...t.json:LINE..." after `at`.
std::uint64_t line_at(std::string_view text, std::size_t at) {
  const auto end = text.find_first_not_of("0123456789", at);
  const auto line = base::parse_number(text.substr(at, end == text.npos ? end : end - at));
  require(line.has_value(), "a message and a rule name a line");
  return *line;
}

void check_refusal(const Error& error, std::uint64_t lines) {
  const std::string_view text = error.what();
  require(error.code() == Code::BadConfiguration && text.starts_with(kPlace),
          "what is refused is named");
  require(text.size() < 1200, "a message fits into a card");
  require(std::ranges::none_of(text, [](char one) { return static_cast<unsigned char>(one) < 32; }),
          "a message is one line");
  const std::uint64_t line = line_at(text, kPlace.size());
  require(line >= 1 && line <= lines, "the text has this line");
}

void check_range(const coll::CountRange& range) {
  require(range.least <= range.most, "something lies in a range");
  require(range.holds(range.least) && range.holds(range.most), "its ends belong to it");
}

void check_rule(const coll::TuningRule& rule, coll::Operation operation) {
  for (const auto& range : {rule.bytes, rule.ranks, rule.nodes, rule.ranks_per_node, rule.rails}) {
    check_range(range);
  }
  const auto names = coll::algorithm_names(operation);
  require(std::ranges::find(names, rule.algorithm) != names.end(), "there is such an algorithm");
  require(rule.ports >= 0 && rule.ports <= 64 && rule.leaders >= 0 && rule.leaders <= 64,
          "ports and leaders are what a call may ask for");
}

int most(const coll::CountRange& range) {
  return static_cast<int>(std::min<std::uint64_t>(range.most, 1'000'000'000));
}

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (const coll::Operation operation : coll::kCollectives) {
    const std::string collective = coll::collective_name(operation);
    std::string rules;
    for (const auto name : coll::algorithm_names(operation)) {
      rules += rules.empty() ? "" : ",\n";
      rules +=
          "{\"bytes\": {\"min\": 0, \"max\": \"64K\"}, \"ranks\": 8, \"nodes\": {\"min\": 2}, "
          "\"ranks_per_node\": {\"max\": 4}, \"rails\": 2, \"algorithm\": \"" +
          std::string(name) + "\", \"ports\": 2, \"comment\": \"\\u00e4\"}";
    }
    all.push_back(bytes_of("{\"format\": 1, \"$schema\": \"s\",\n\"rules\": {\"" + collective +
                           "\": [" + rules + "]}}"));
  }
  all.push_back(
      bytes_of("{\"format\": 1, \"rules\": {\"allgather\": [{\"leaders\": 2, "
               "\"bytes\": \"1G\",\r\n\"algorithm\": \"smp-ring\"}], \"gather\": []}}"));
  return all;
}

void fuzz_one(std::span<const std::byte> input) {
  const std::string_view text = text_of(input);
  const auto lines = 1 + static_cast<std::uint64_t>(std::ranges::count(text, '\n'));
  TuningFile file;
  try {
    file = parse_tuning_file(text, "t.json");
  } catch (const Error& error) {
    check_refusal(error, lines);
    return;
  }
  require(file.fingerprint == parse_tuning_file(text, "other.json").fingerprint,
          "the fingerprint is that of the contents");
  for (const auto& [collective, rules] : file.rules.of) {
    const coll::Operation operation = coll::operation_of(collective);
    std::uint64_t last_line = 1;
    for (const coll::TuningRule& rule : rules) {
      check_rule(rule, operation);
      const std::uint64_t line = line_at(rule.origin, std::string_view("t.json:").size());
      require(line >= last_line && line <= lines, "rules are in the order of their lines");
      last_line = line;
      coll::SelectionFacts facts;
      facts.bytes_per_rank = rule.bytes.most;
      facts.ranks = most(rule.ranks);
      facts.nodes = most(rule.nodes);
      facts.smallest_node = facts.largest_node = most(rule.ranks_per_node);
      facts.rails = most(rule.rails);
      if (!rule.fits(facts)) continue;  // a range beyond what a job can have
      const auto* found = file.rules.find(operation, facts);
      require(found != nullptr && found <= &rule, "the first rule that fits is found");
    }
  }
}

}  // namespace allrail::fuzz
