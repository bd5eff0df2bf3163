#include "lib/tuning_model.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "lib/base/error.hpp"

namespace allrail {
namespace {

using Kind = JsonValue::Kind;

/// One value after the other into the parameters that have their names.
class ModelReader {
 public:
  explicit ModelReader(const TextOrigin& origin) : origin_(origin) {}

  void operator()(const JsonValue& value, double& into) const {
    if (!value.number) refuse(value, "a number");
    into = *value.number;
  }
  void operator()(const JsonValue& value, std::uint64_t& into) const {
    if (!value.whole) refuse(value, "a whole number that is not negative");
    into = *value.whole;
  }
  void operator()(const JsonValue& value, int& into) const {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<int>::max());
    if (!value.whole || *value.whole > kMost) refuse(value, "a whole number that is not negative");
    into = static_cast<int>(*value.whole);
  }
  void operator()(const JsonValue& value, bool& into) const {
    if (value.kind != Kind::Boolean) refuse(value, "true or false");
    into = value.text == "true";
  }
  void operator()(const JsonValue& value, std::string& into) const {
    if (value.kind != Kind::Text) refuse(value, "a text");
    into = value.text;
  }
  template <class Number>
  void operator()(const JsonValue& value, std::vector<Number>& into) const {
    if (value.kind != Kind::List) refuse(value, "a list of numbers");
    into.clear();
    for (const JsonValue& item : value.items) (*this)(item, into.emplace_back());
  }

 private:
  [[noreturn]] void refuse(const JsonValue& value, const char* wanted) const {
    const std::string what = value.name.empty() ? "an item of a list of the model"
                                                : fmt::format("'{}' of the model", value.name);
    fail_at(origin_, value.line,
            fmt::format("{} is {}; it must be {}", what, describe(value), wanted));
  }

  const TextOrigin& origin_;
};

}  // namespace

diagnostics::CostModel read_cost_model(const JsonValue& value, const TextOrigin& origin) {
  if (value.kind != Kind::Object) {
    fail_at(origin, value.line,
            fmt::format("'model' is {}; it must be an object with parameters of the cost model",
                        describe(value)));
  }
  diagnostics::CostModel model;
  std::vector<std::string> names;
  diagnostics::for_parameters(model, [&](const char* name, auto& member) {
    names.emplace_back(name);
    if (const JsonValue* given = value.find(name)) ModelReader{origin}(*given, member);
  });
  for (const JsonValue& member : value.items) {
    if (member.name == "context" || std::ranges::find(names, member.name) != names.end()) continue;
    std::string allowed = "context";
    for (const std::string& name : names) allowed += ", " + name;
    fail_at(origin, member.name_line,
            fmt::format("the model has no '{}'; allowed are: {}", shown(member.name), allowed));
  }
  try {
    diagnostics::check_model(model);
  } catch (const Error& error) {
    fail_at(origin, value.line, error.what());
  }
  return model;
}

}  // namespace allrail
