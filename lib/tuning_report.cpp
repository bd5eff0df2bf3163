// The tuning file in the eyes of allrail-info.

#include "lib/diagnostics.hpp"
#include "lib/tuning_file.hpp"

namespace allrail::diagnostics {

TuningInfo describe_tuning(const Options& settings) {
  const TuningFile file = read_tuning_file(settings.tuning_file);
  TuningInfo info;
  info.path = file.path;
  info.model = file.model;
  for (const auto& [collective, rules] : file.rules.of) {
    info.rules.emplace_back(collective, static_cast<int>(rules.size()));
  }
  return info;
}

}  // namespace allrail::diagnostics
