// The table of settings behind allrail::Options.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "include/allrail/options.hpp"

namespace allrail::base {

/// `options`, if every one has a value that its variable may have: programs set them, too.
/// Throws Error{BadConfiguration} naming the variable, the value and what is allowed.
const Options& check_settings(const Options& options);

/// Name and value of every setting that must be the same on all ranks, in a fixed order. Exchanged
/// at start-up; the first difference is reported with both ranks.
std::vector<std::pair<std::string, std::string>> settings_that_must_agree(const Options& options);

}  // namespace allrail::base
