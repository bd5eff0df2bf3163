#include "perf/model_file.hpp"

#include <fstream>

#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"

namespace allrail::perf {

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
    diagnostics::for_parameters(model, [&document](const char* name, auto& member) {
      if (!document.contains(name)) return;
      document.at(name).get_to(member);
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
  return model;
}

void write_model(const std::string& file, const diagnostics::CostModel& model,
                 const std::string& context) {
  nlohmann::json document = {{"context", context}};
  diagnostics::for_parameters(
      model, [&document](const char* name, const auto& member) { document[name] = member; });
  std::ofstream stream(file);
  stream << document.dump(2) << '\n';
  if (!stream.flush()) {
    base::fail(Code::InvalidArgument, "the model file {} cannot be written", file);
  }
}

}  // namespace allrail::perf
