// The tuning file, ALLRAIL_TUNING_FILE: which algorithm a call takes, by rules of the user.
// Its format is described in docs/tuning.md and docs/tuning.schema.json.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "coll/tuning_rules.hpp"
#include "lib/simulation.hpp"

namespace allrail {

struct TuningFile {
  std::string path;  // empty: there is none
  coll::TuningRules rules;
  std::optional<diagnostics::CostModel> model;  // that is asked where no rule fits
  /// What ranks compare at start-up, since they may have the file at different places: equal for
  /// equal contents, different (but for one case in 2^64) for different ones.
  std::string fingerprint = "none";

  std::size_t rule_count() const;
};

/// Reads and checks the file; an empty path is no file. Local.
/// @throws Error{BadConfiguration} naming file, line and what is allowed.
TuningFile read_tuning_file(const std::string& path);

/// The same for the contents of a file that is called `path`.
TuningFile parse_tuning_file(std::string_view contents, const std::string& path);

}  // namespace allrail
