#include "perf/model_file.hpp"

#include <cstdint>
#include <fstream>
#include <limits>
#include <vector>

#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"

namespace allrail::perf {
namespace {

/// One value into the parameter of its kind. Left to itself the parser makes 2 of 2.5, 1 of true
/// and a huge number of -1.
class ParameterReader {
 public:
  ParameterReader(const std::string& file, const char* name) : file_(file), name_(name) {}

  void operator()(const nlohmann::json& value, double& into) const {
    if (!value.is_number()) refuse(value, "a number");
    into = value.get<double>();
  }
  void operator()(const nlohmann::json& value, std::uint64_t& into) const {
    if (!value.is_number_unsigned()) refuse(value, "a whole number that is not negative");
    into = value.get<std::uint64_t>();
  }
  void operator()(const nlohmann::json& value, int& into) const {
    std::uint64_t whole = 0;
    (*this)(value, whole);
    if (whole > std::numeric_limits<int>::max()) refuse(value, "a smaller number");
    into = static_cast<int>(whole);
  }
  void operator()(const nlohmann::json& value, bool& into) const {
    if (!value.is_boolean()) refuse(value, "true or false");
    into = value.get<bool>();
  }
  void operator()(const nlohmann::json& value, std::string& into) const {
    if (!value.is_string()) refuse(value, "a text");
    into = value.get<std::string>();
  }
  template <class Number>
  void operator()(const nlohmann::json& value, std::vector<Number>& into) const {
    if (!value.is_array()) refuse(value, "a list of numbers");
    into.clear();
    for (const nlohmann::json& item : value) (*this)(item, into.emplace_back());
  }

 private:
  [[noreturn]] void refuse(const nlohmann::json& value, const char* wanted) const {
    base::fail(Code::InvalidArgument, "the model file {} has {} in '{}'; it must be {}", file_,
               value.dump(), name_, wanted);
  }

  const std::string& file_;
  const char* const name_;
};

void check(const diagnostics::CostModel& model, const std::string& file) {
  try {
    diagnostics::check_model(model);
  } catch (const Error& error) {
    base::fail(Code::InvalidArgument, "the model file {} holds no model: {}", file, error.what());
  }
}

}  // namespace

diagnostics::CostModel read_model(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) {
    base::fail(Code::InvalidArgument,
               "the model file {} cannot be read; allrail-bench fit --json "
               "writes one",
               file);
  }
  diagnostics::CostModel model;
  try {
    nlohmann::json document = nlohmann::json::parse(stream);
    document.erase("context");
    diagnostics::for_parameters(model, [&](const char* name, auto& member) {
      if (!document.contains(name)) return;
      ParameterReader{file, name}(document.at(name), member);
      document.erase(name);
    });
    if (!document.empty()) {
      base::fail(Code::InvalidArgument, "the model file {} has a member '{}', which no model has",
                 file, document.begin().key());
    }
  } catch (const nlohmann::json::exception& error) {
    base::fail(Code::InvalidArgument, "the model file {} is no object of parameters: {}", file,
               error.what());
  }
  check(model, file);
  return model;
}

void write_model(const std::string& file, const diagnostics::CostModel& model,
                 const std::string& context) {
  nlohmann::json document = {{"context", context}};
  diagnostics::for_parameters(
      model, [&document](const char* name, const auto& member) { document[name] = member; });
  std::ofstream stream(file);
  // The command line in the context may hold any bytes.
  stream << document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  if (!stream.flush()) {
    base::fail(Code::InvalidArgument, "the model file {} cannot be written", file);
  }
}

}  // namespace allrail::perf
