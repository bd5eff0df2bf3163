// Log lines on stderr with level and rank. Nothing is logged per message above trace.
//
// The function that decides that something is an error logs it once; callers stay quiet.
// Texts are lower case, exact causes, no guesses.
#pragma once

#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace allrail::base {

enum class Level { Trace, Debug, Info, Warning, Error, Off };

/// Sets what is printed and the rank that every line carries (-1: not known yet).
void set_log(Level level, int rank);
bool log_enabled(Level level) noexcept;
/// Prints one line now, whatever its level; use the functions below.
void write_log(Level level, std::string_view text) noexcept;

template <class... Args>
void log(Level level, fmt::format_string<Args...> text, Args&&... args) {
  if (log_enabled(level)) write_log(level, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void log_debug(fmt::format_string<Args...> text, Args&&... args) {
  log(Level::Debug, text, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(fmt::format_string<Args...> text, Args&&... args) {
  log(Level::Info, text, std::forward<Args>(args)...);
}
template <class... Args>
void log_warning(fmt::format_string<Args...> text, Args&&... args) {
  log(Level::Warning, text, std::forward<Args>(args)...);
}
template <class... Args>
void log_error(fmt::format_string<Args...> text, Args&&... args) {
  log(Level::Error, text, std::forward<Args>(args)...);
}

}  // namespace allrail::base
