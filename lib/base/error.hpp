// Throwing allrail::Error with a formatted sentence, and one helper per C return convention.
#pragma once

#include <cerrno>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "include/allrail/error.hpp"

namespace allrail::base {

/// Throws Error{code} with the formatted sentence.
template <class... Args>
[[noreturn]] void fail(Code code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

/// The same, naming the peer rank.
template <class... Args>
[[noreturn]] void fail_with_peer(Code code, int peer, fmt::format_string<Args...> text,
                                 Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...), peer);
}

/// The text of an errno value.
std::string errno_text(int error_number);

/// The same for what the system refused: of open files also how many there may be, and what to
/// change.
std::string refusal_text(int error_number);

/// What std::bad_alloc is told as, and what to change.
inline constexpr const char* kNoMemory =
    "no memory is left; raise what this rank may have (ulimit -v, or the limit of its container), "
    "or run fewer ranks on its host";

/// For calls that return -1 and set errno: passes any other value through, throws
/// Error{ResourceLimit} "<action>: <refusal text>" on -1.
int check_minus_one(int result, const char* action);

/// For calls that return 0 or an errno value (pthread_*, posix_fallocate, most verbs calls).
void check_errno_value(int result, const char* action);

}  // namespace allrail::base
