// Threads of our own in the user's process.
#pragma once

#include <functional>
#include <string_view>
#include <thread>

namespace allrail::base {

/// Starts a thread with all signals blocked: they belong to the user's threads. `what_for` is a
/// part of the sentence where the system has none left. Throws Error{ResourceLimit}.
std::thread start_thread(std::string_view what_for, std::function<void()> body);

}  // namespace allrail::base
