#include "perf/model_file.hpp"

#include <fstream>

#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"

namespace allrail::perf {
namespace {

/// visit(name, member) for every parameter.
template <class Model, class Visit>
void for_members(Model& model, const Visit& visit) {
  visit("latency_us", model.latency_us);
  visit("message_us", model.message_us);
  visit("post_us", model.post_us);
  visit("arrival_us", model.arrival_us);
  visit("rail_MBps", model.rail_MBps);
  visit("stripe_bytes", model.stripe_bytes);
  visit("copy_MBps", model.copy_MBps);
  visit("memory_MBps", model.memory_MBps);
  visit("flag_us", model.flag_us);
  visit("local_puts", model.local_puts);
  visit("hop_us", model.hop_us);
  visit("leaf_size", model.leaf_size);
  visit("oversubscription", model.oversubscription);
  visit("uplink_MBps", model.uplink_MBps);
  visit("background", model.background);
  visit("domains", model.domains);
  visit("rail_domain", model.rail_domain);
  visit("far_share", model.far_share);
  visit("own_ports", model.own_ports);
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
    for_members(model, [&document](const char* name, auto& member) {
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
  for_members(model,
              [&document](const char* name, const auto& member) { document[name] = member; });
  std::ofstream stream(file);
  stream << document.dump(2) << '\n';
  if (!stream.flush()) {
    base::fail(Code::InvalidArgument, "the model file {} cannot be written", file);
  }
}

}  // namespace allrail::perf
