#include "lib/tuning_file.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <vector>

#include <fmt/core.h>

#include "coll/block_header.hpp"
#include "coll/recipe.hpp"
#include "lib/base/error.hpp"
#include "lib/base/parse.hpp"
#include "lib/json_lines.hpp"
#include "lib/tuning_model.hpp"

namespace allrail {
namespace {

constexpr const char* kSetting = "ALLRAIL_TUNING_FILE";
constexpr std::uint64_t kFormat = 1;
// Thousands of rules, and little enough to be read by every rank at once.
constexpr std::uintmax_t kMostFileBytes = 1ULL * 1024 * 1024;
constexpr std::uint64_t kMostRanksInRule = std::numeric_limits<int>::max();
constexpr std::uint64_t kMostRails = 64;
// As CallOptions allows them.
constexpr std::uint64_t kMostPortsInRule = 64;
constexpr std::uint64_t kMostLeaders = 64;

using Kind = JsonValue::Kind;

template <class Words>
std::string joined(const Words& words) {
  std::string text;
  for (const auto& word : words) {
    text += text.empty() ? "" : ", ";
    text += word;
  }
  return text;
}

/// What the numbers of a range may be.
struct Limits {
  std::uint64_t least;
  std::uint64_t most;
  bool are_bytes;  // may be written "64K"

  std::string words() const {
    if (are_bytes) return "whole numbers of bytes, or texts such as \"64K\" (K, M, G)";
    return fmt::format("whole numbers from {} to {}", least, most);
  }
};

/// Turns the values of one file into rules.
class Reader {
 public:
  explicit Reader(const TextOrigin& origin) : origin_(origin) {}

  void read(const JsonValue& root, TuningFile& file) const {
    check_object(root, "a tuning file", {"$schema", "format", "comment", "rules", "model"});
    check_text(root, "$schema");
    check_text(root, "comment");
    const JsonValue& format = required(root, "a tuning file", "format");
    if (format.whole != kFormat) {
      fail(format, "'format' is {}; this Allrail reads {}", describe(format), kFormat);
    }
    const JsonValue* model = root.find("model");
    if (model != nullptr) file.model = read_cost_model(*model, origin_);
    if (model == nullptr || root.find("rules") != nullptr) {
      file.rules = read_rules(required(root, "a tuning file", "rules"));
    }
  }

 private:
  coll::TuningRules read_rules(const JsonValue& lists) const {
    std::vector<std::string> collectives;
    for (const coll::Operation operation : coll::kCollectives) {
      collectives.emplace_back(coll::collective_name(operation));
    }
    if (lists.kind != Kind::Object) {
      fail(lists, "'rules' is {}; it must be an object with a list of rules for each of: {}",
           describe(lists), joined(collectives));
    }
    coll::TuningRules rules;
    for (const JsonValue& list : lists.items) {
      if (std::ranges::find(collectives, list.name) == collectives.end()) {
        fail_at(origin_, list.name_line,
                fmt::format("there is no collective '{}'; allowed are: {}", shown(list.name),
                            joined(collectives)));
      }
      rules.of[list.name] = read_list(list);
    }
    return rules;
  }

  template <class... Args>
  [[noreturn]] void fail(const JsonValue& at, fmt::format_string<Args...> text,
                         Args&&... args) const {
    fail_at(origin_, at.line, fmt::format(text, std::forward<Args>(args)...));
  }

  std::vector<coll::TuningRule> read_list(const JsonValue& list) const {
    if (list.kind != Kind::List) {
      fail(list, "the rules of {} are {}; they must be a list of objects", list.name,
           describe(list));
    }
    std::vector<coll::TuningRule> rules;
    for (const JsonValue& rule : list.items) rules.push_back(read_rule(rule, list.name));
    return rules;
  }

  coll::TuningRule read_rule(const JsonValue& value, const std::string& collective) const {
    check_object(value, "a rule",
                 {"bytes", "ranks", "nodes", "ranks_per_node", "rails", "algorithm", "ports",
                  "leaders", "comment"});
    check_text(value, "comment");
    coll::TuningRule rule;
    rule.bytes = read_range(value, "bytes", {0, UINT64_MAX, true});
    rule.ranks = read_range(value, "ranks", {1, kMostRanksInRule, false});
    rule.nodes = read_range(value, "nodes", {1, kMostRanksInRule, false});
    rule.ranks_per_node = read_range(value, "ranks_per_node", {1, kMostRanksInRule, false});
    rule.rails = read_range(value, "rails", {1, kMostRails, false});
    rule.algorithm = read_algorithm(required(value, "a rule", "algorithm"), collective);
    rule.ports = read_count(value, "ports", kMostPortsInRule);
    rule.leaders = read_count(value, "leaders", kMostLeaders);
    if (rule.leaders > 0 && !coll::has_lanes(coll::operation_of(collective))) {
      fail(*value.find("leaders"),
           "a rule of {} has 'leaders'; only allgathers and alltoalls have more than one",
           collective);
    }
    rule.origin = fmt::format("{}:{}", origin_.file, value.line);
    return rule;
  }

  std::string read_algorithm(const JsonValue& value, const std::string& collective) const {
    const auto names = coll::algorithm_names(coll::operation_of(collective));
    if (value.kind != Kind::Text) {
      fail(value, "'algorithm' is {}; it must be a text, one of: {}", describe(value),
           joined(names));
    }
    if (std::ranges::find(names, value.text) == names.end()) {
      fail(value, "there is no {} algorithm '{}'; allowed are: {}", collective, shown(value.text),
           joined(names));
    }
    return value.text;
  }

  coll::CountRange read_range(const JsonValue& rule, const char* name, const Limits& limits) const {
    coll::CountRange range;
    const JsonValue* value = rule.find(name);
    if (value == nullptr) return range;
    if (value->kind != Kind::Object) {
      range.least = range.most = read_number(*value, fmt::format("'{}'", name), limits,
                                             ", or an object with 'min', 'max' or both");
      return range;
    }
    check_object(*value, "a range", {"min", "max"});
    if (value->items.empty()) {
      fail(*value, "'{}' is an empty object; it needs 'min', 'max' or both", name);
    }
    for (const JsonValue& end : value->items) {
      (end.name == "min" ? range.least : range.most) =
          read_number(end, fmt::format("'{}' of '{}'", end.name, name), limits, "");
    }
    if (range.least > range.most) {
      fail(*value, "nothing lies in '{}': 'min' is {} and 'max' is {}", name, range.least,
           range.most);
    }
    return range;
  }

  std::uint64_t read_number(const JsonValue& value, const std::string& what, const Limits& limits,
                            const char* or_else) const {
    auto number = value.whole;
    if (limits.are_bytes && value.kind == Kind::Text) number = base::parse_bytes(value.text);
    if (!number || *number < limits.least || *number > limits.most) {
      fail(value, "{} is {}; allowed are {}{}", what, describe(value), limits.words(), or_else);
    }
    return *number;
  }

  /// 0 where it is not given.
  int read_count(const JsonValue& rule, const char* name, std::uint64_t most) const {
    const JsonValue* value = rule.find(name);
    if (value == nullptr) return 0;
    if (!value->whole || *value->whole < 1 || *value->whole > most) {
      fail(*value, "'{}' is {}; allowed are whole numbers from 1 to {}", name, describe(*value),
           most);
    }
    return static_cast<int>(*value->whole);
  }

  void check_object(const JsonValue& value, const char* what,
                    std::initializer_list<std::string_view> names) const {
    if (value.kind != Kind::Object) {
      fail(value, "{} is {}; it must be an object with some of: {}", what, describe(value),
           joined(names));
    }
    for (const JsonValue& member : value.items) {
      if (std::ranges::find(names, member.name) != names.end()) continue;
      fail_at(
          origin_, member.name_line,
          fmt::format("{} has no '{}'; allowed are: {}", what, shown(member.name), joined(names)));
    }
  }

  void check_text(const JsonValue& object, const char* name) const {
    const JsonValue* value = object.find(name);
    if (value == nullptr || value->kind == Kind::Text) return;
    fail(*value, "'{}' is {}; it must be a text", name, describe(*value));
  }

  const JsonValue& required(const JsonValue& object, const char* what, const char* name) const {
    const JsonValue* value = object.find(name);
    if (value == nullptr) fail(object, "{} needs '{}'", what, name);
    return *value;
  }

  const TextOrigin& origin_;
};

std::string read_whole(const std::string& path) {
  const auto refuse = [&path](const std::string& why) {
    base::fail(Code::BadConfiguration,
               "{} is '{}', which {}; name a file that every rank can read, or leave it unset",
               kSetting, path, why);
  };
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error) refuse("cannot be read: " + error.message());
  // A pipe would have its contents for one rank only.
  if (!std::filesystem::is_regular_file(status)) refuse("is no regular file");
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse("cannot be read: " + base::errno_text(errno));
  std::string contents(kMostFileBytes + 1, '\0');
  file.read(contents.data(), static_cast<std::streamsize>(contents.size()));
  if (file.bad()) refuse("cannot be read");
  contents.resize(static_cast<std::size_t>(file.gcount()));
  if (contents.size() > kMostFileBytes) {
    refuse("is longer than " + base::format_bytes(kMostFileBytes));
  }
  return contents;
}

std::string fingerprint_of(std::string_view contents, std::size_t rules) {
  std::uint64_t hash = contents.size();
  for (const char character : contents) {
    hash = coll::mix(hash, static_cast<unsigned char>(character));
  }
  return fmt::format("{} rules, contents {:016x}", rules, hash);
}

}  // namespace

std::size_t TuningFile::rule_count() const {
  std::size_t count = 0;
  for (const auto& [collective, list] : rules.of) count += list.size();
  return count;
}

TuningFile read_tuning_file(const std::string& path) {
  if (path.empty()) return {};
  return parse_tuning_file(read_whole(path), path);
}

TuningFile parse_tuning_file(std::string_view contents, const std::string& path) {
  const TextOrigin origin{kSetting, path};
  TuningFile file;
  file.path = path;
  Reader(origin).read(parse_json(contents, origin), file);
  file.fingerprint = fingerprint_of(contents, file.rule_count());
  return file;
}

}  // namespace allrail
