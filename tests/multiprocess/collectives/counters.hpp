// Counts allocations, mutexes taken and system calls of one thread, and all bytes that operator new
// has handed out. Linked into a program, it replaces these functions of the C and C++ libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace counters {

/// False under sanitizers, which replace the same functions, and on processors other than x86-64.
bool can_count() noexcept;

/// What operator new has handed out and not got back, on all threads.
std::size_t live_bytes() noexcept;

/// Between them, what the calling thread does is counted. False: the kernel (before 5.11) does not
/// tell of system calls.
bool start() noexcept;
void stop() noexcept;

std::uint64_t allocations() noexcept;
std::uint64_t locks() noexcept;
std::uint64_t system_calls() noexcept;
/// Those that send: sendto, sendmsg, write, writev.
std::uint64_t sends() noexcept;
/// Their numbers and how often: "24:3 202:1".
std::string system_call_text();

}  // namespace counters
